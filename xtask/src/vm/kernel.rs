//! Debian's kernels for virtual machines. They are unpacked in the cache and never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::tools::{cache_dir, output, run};

/// The package that depends on the newest kernel for clouds.
const PACKAGE: &str = "linux-image-cloud-amd64";
const MIRROR: &str = "http://deb.debian.org";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A release of Debian.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Debian {
    #[value(name = "12")]
    Bookworm,
    #[value(name = "13")]
    Trixie,
}

impl Debian {
    fn code_name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }
}

/// An unpacked kernel.
pub struct Kernel {
    /// As in `uname -r`.
    pub release: String,
    pub image: PathBuf,
    /// What `/lib/modules/RELEASE` holds.
    pub modules: PathBuf,
}

impl Kernel {
    /// The kernel in the cache, which is filled first when it is empty.
    pub fn of(debian: Debian) -> Result<Self> {
        let dir = cache_dir().join("vm").join(debian.code_name());
        if !dir.join("kernel").exists() {
            let staged = dir.join("kernel.new");
            // Left by a run that was interrupted.
            let _ = fs::remove_dir_all(&staged);
            Apt::prepare(&dir, debian)?.unpack_kernel(&staged)?;
            fs::rename(&staged, dir.join("kernel"))?;
        }
        Self::find(&dir.join("kernel"))
    }

    fn find(dir: &Path) -> Result<Self> {
        let modules = module_directory(dir)?;
        let release = modules.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let image = dir.join("boot").join(format!("vmlinuz-{release}"));
        ensure!(
            image.exists(),
            "{} is not there; remove {}",
            image.display(),
            dir.display()
        );
        Ok(Self {
            release,
            image,
            modules,
        })
    }
}

/// The one directory in `/lib/modules` or, in newer releases, `/usr/lib/modules`.
fn module_directory(dir: &Path) -> Result<PathBuf> {
    let parents = ["lib/modules", "usr/lib/modules"].map(|path| dir.join(path));
    let mut found = parents.iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten();
    let entry = found
        .next()
        .with_context(|| format!("{} has no modules; remove it", dir.display()))?;
    Ok(entry?.path())
}

/// Debian's archive of one release, beside whatever this machine itself uses.
struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn prepare(dir: &Path, debian: Debian) -> Result<Self> {
        let apt = Self { dir: dir.join("apt") };
        fs::create_dir_all(apt.dir.join("lists/partial"))?;
        fs::create_dir_all(apt.dir.join("cache/archives/partial"))?;
        let name = debian.code_name();
        let sources = format!(
            "deb [signed-by={KEYS}] {MIRROR}/debian {name} main\n\
             deb [signed-by={KEYS}] {MIRROR}/debian-security {name}-security main\n"
        );
        fs::write(apt.dir.join("sources.list"), sources)?;
        run(apt.command("apt-get").args(["update", "-q"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, value) in [
            ("Dir::Etc::SourceList", self.dir.join("sources.list")),
            ("Dir::Etc::SourceParts", "-".into()),
            ("Dir::State::Lists", self.dir.join("lists")),
            ("Dir::Cache", self.dir.join("cache")),
            // It must be able to write to the cache, which is this user's own.
            ("APT::Sandbox::User", "root".into()),
        ] {
            command.arg("-o").arg(format!("{option}={}", value.display()));
        }
        command
    }

    fn unpack_kernel(&self, into: &Path) -> Result<()> {
        let depends = output(self.command("apt-cache").args(["depends", PACKAGE]))?;
        let package = depends
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: "))
            .with_context(|| format!("{PACKAGE} depends on no kernel"))?;
        fs::create_dir_all(into)?;
        run(self
            .command("apt-get")
            .current_dir(into)
            .args(["download", "-q", package]))?;
        let archive = fs::read_dir(into)?.next().context("nothing was downloaded")??.path();
        run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(into))?;
        fs::remove_file(&archive)?;
        let modules = module_directory(into)?;
        // It expects them in /lib.
        let base = modules.ancestors().nth(3).context("modules are in /lib/modules")?;
        run(Command::new("depmod")
            .arg("-b")
            .arg(base)
            .arg(modules.file_name().unwrap_or_default()))
    }
}
