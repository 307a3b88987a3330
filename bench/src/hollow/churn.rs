//! The user of a hollow cluster: creates pods, sees them get Ready, and replaces some.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use futures_util::stream;
use futures_util::{StreamExt, TryStreamExt};
use http::Method;
use tokio::sync::watch;

use crate::http2::{JSON, Pool};
use crate::objects::{PODS, pod, revision};
use crate::pod_watch::PodWatch;
use crate::times::Times;

/// Pods that do not get Ready for so long never will.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Churn {
    requests: Pool,
    next: usize,
    /// Oldest first.
    alive: VecDeque<String>,
    waiting: Waiting,
    /// How many pods got Ready so far, and one more when the watch has ended.
    ready: watch::Receiver<Result<usize, String>>,
}

/// When the pods that are not Ready yet were asked for, and how long the others took.
type Waiting = Arc<Mutex<(HashMap<String, Instant>, Times)>>;

impl Churn {
    pub async fn begin(requests: Pool) -> Result<Self> {
        let list = requests
            .ask(Method::GET, &format!("{PODS}?limit=1"), JSON, Vec::new())
            .await?;
        let pods = PodWatch::open(requests.clone(), &format!("{PODS}?"), revision(&list)?).await?;
        let waiting = Waiting::default();
        let (seen, ready) = watch::channel(Ok(0));
        let noted = waiting.clone();
        tokio::spawn(async move {
            let error = follow(pods, noted, &seen).await;
            let _ = seen.send(Err(format!("{error:#}")));
        });
        Ok(Self {
            requests,
            next: 0,
            alive: VecDeque::new(),
            waiting,
            ready,
        })
    }

    pub fn count(&self) -> usize {
        self.alive.len()
    }

    /// Creates pods until there are so many, and waits until all are Ready.
    pub async fn fill(&mut self, count: usize, at_once: usize) -> Result<()> {
        let names: Vec<String> = (self.alive.len()..count).map(|_| self.name()).collect();
        stream::iter(names.clone().into_iter().map(|name| self.create(name)))
            .buffer_unordered(at_once)
            .try_collect::<()>()
            .await?;
        self.alive.extend(names);
        self.settle().await
    }

    /// Replaces the oldest pods at a steady rate; how many.
    pub async fn run(&mut self, rate: usize, span: Duration) -> Result<usize> {
        let total = rate * span.as_secs() as usize;
        let begun = tokio::time::Instant::now();
        for number in 0..total {
            tokio::time::sleep_until(begun + Duration::from_secs_f64(number as f64 / rate as f64)).await;
            let Some(oldest) = self.alive.pop_front() else { break };
            let name = self.name();
            let path = format!("{PODS}/{oldest}");
            let (removed, created) = futures_util::join!(
                self.requests.ask(Method::DELETE, &path, JSON, Vec::new()),
                self.create(name.clone())
            );
            removed?;
            created?;
            self.alive.push_back(name);
        }
        tokio::time::sleep_until(begun + span).await;
        self.settle().await?;
        Ok(total)
    }

    /// How long pods took from the request to Ready, since last asked.
    pub fn times(&self) -> Times {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner).1)
    }

    pub fn forget(&self) {
        self.times();
    }

    fn name(&mut self) -> String {
        self.next += 1;
        format!("hollow-{}", self.next)
    }

    async fn create(&self, name: String) -> Result<()> {
        let body = pod(&name);
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .insert(name, Instant::now());
        self.requests.ask(Method::POST, PODS, JSON, body).await.map(drop)
    }

    /// Waits until no pod is waited for; fails when none gets Ready any more.
    async fn settle(&mut self) -> Result<()> {
        loop {
            let left = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).0.len();
            if left == 0 {
                return Ok(());
            }
            let changed = tokio::time::timeout(PATIENCE, self.ready.changed()).await;
            changed.with_context(|| format!("{left} pods do not get Ready"))??;
            let ended = self.ready.borrow_and_update().clone();
            ended.map_err(|error| anyhow!("the watch of all pods failed: {error}"))?;
        }
    }
}

/// Notes the pods that get Ready, until the watch fails.
async fn follow(mut pods: PodWatch, waiting: Waiting, seen: &watch::Sender<Result<usize, String>>) -> anyhow::Error {
    let mut count = 0;
    loop {
        let event = match pods.next().await {
            Ok(event) => event,
            Err(error) => return error,
        };
        if event.object.status.phase != "Running" {
            continue;
        }
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(begun) = waiting.0.remove(&event.object.metadata.name) {
            waiting.1.add(begun.elapsed());
            count += 1;
            let _ = seen.send_replace(Ok(count));
        }
    }
}
