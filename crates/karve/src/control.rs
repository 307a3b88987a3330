//! A socket in the node's state directory, by which commands on this machine reach the embedded runtime: what they
//! want has no place in the CRI.

use std::fs;
use std::io::{self, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use cri::Runtime;
use cri::v1::ListImagesRequest;
use runtime::Embedded;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tracing::debug;

/// What a command asks, as one line of JSON. An import is followed by the archive's bytes.
#[derive(Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Question {
    Images,
    Import { bytes: u64 },
}

/// The answer, as one line of JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Images(Vec<ImageRow>),
    Imported(Vec<String>),
    Failed(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageRow {
    pub names: Vec<String>,
    pub id: String,
    pub size: u64,
}

fn socket(state_dir: &Path) -> PathBuf {
    state_dir.join("control.sock")
}

/// Answers until the task is aborted.
pub fn serve(state_dir: &Path, runtime: Arc<Embedded>) -> Result<JoinHandle<()>> {
    let path = socket(state_dir);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let listener = UnixListener::bind(&path).with_context(|| format!("failed to listen on {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let runtime = runtime.clone();
            tokio::spawn(async move {
                if let Err(error) = answer(stream, runtime).await {
                    debug!(%error, "A command closed its connection");
                }
            });
        }
    }))
}

async fn answer(stream: UnixStream, runtime: Arc<Embedded>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line)? {
        Question::Images => images(&*runtime).await,
        Question::Import { bytes } => import(&mut stream, bytes, &runtime).await,
    };
    let answer = answer.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")));
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    stream.get_mut().write_all(&text).await?;
    Ok(())
}

async fn images(runtime: &dyn Runtime) -> Result<Answer> {
    let listed = runtime.list_images(ListImagesRequest::default()).await?;
    let rows = listed.images.into_iter().map(|image| ImageRow {
        names: image.repo_tags,
        id: image.id,
        size: image.size,
    });
    Ok(Answer::Images(rows.collect()))
}

async fn import(stream: &mut BufReader<UnixStream>, bytes: u64, runtime: &Embedded) -> Result<Answer> {
    let mut spool = tempfile::tempfile().context("failed to create a temporary file for the archive")?;
    let mut left = bytes;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let wanted = buffer.len().min(left as usize);
        let read = stream.read(&mut buffer[..wanted]).await?;
        if read == 0 {
            bail!("the archive is incomplete: {left} bytes are missing");
        }
        spool.write_all(&buffer[..read])?;
        left -= read as u64;
    }
    spool.rewind()?;
    Ok(Answer::Imported(runtime.import_images(spool).await?))
}

/// The images of a running node; none when no node runs.
pub async fn list(state_dir: &Path) -> Result<Option<Vec<ImageRow>>> {
    let Some(mut stream) = connect(state_dir).await? else {
        return Ok(None);
    };
    match ask(&mut stream, &Question::Images).await? {
        Answer::Images(rows) => Ok(Some(rows)),
        Answer::Failed(why) => bail!(why),
        Answer::Imported(_) => {
            bail!("unexpected response from the node; check that `karve` and the running node have the same version")
        }
    }
}

/// Hands an archive to a running node and returns the names of the images in it.
pub async fn import_file(state_dir: &Path, archive: &Path) -> Result<Vec<String>> {
    let Some(mut stream) = connect(state_dir).await? else {
        bail!("no node with the embedded runtime is running on this machine; start one with `karve up`");
    };
    let mut file = tokio::fs::File::open(archive)
        .await
        .with_context(|| format!("failed to read {}", archive.display()))?;
    let bytes = file.metadata().await?.len();
    send(&mut stream, &Question::Import { bytes }).await?;
    tokio::io::copy(&mut file, stream.get_mut()).await?;
    match receive(&mut stream).await? {
        Answer::Imported(names) => Ok(names),
        Answer::Failed(why) => bail!(why),
        Answer::Images(_) => {
            bail!("unexpected response from the node; check that `karve` and the running node have the same version")
        }
    }
}

async fn connect(state_dir: &Path) -> Result<Option<BufReader<UnixStream>>> {
    match UnixStream::connect(socket(state_dir)).await {
        Ok(stream) => Ok(Some(BufReader::new(stream))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("failed to connect to {}", socket(state_dir).display())),
    }
}

async fn ask(stream: &mut BufReader<UnixStream>, question: &Question) -> Result<Answer> {
    send(stream, question).await?;
    receive(stream).await
}

async fn send(stream: &mut BufReader<UnixStream>, question: &Question) -> Result<()> {
    let mut line = serde_json::to_vec(question)?;
    line.push(b'\n');
    stream.get_mut().write_all(&line).await?;
    Ok(())
}

async fn receive(stream: &mut BufReader<UnixStream>) -> Result<Answer> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    serde_json::from_str(&line).context("failed to parse the node's response")
}
