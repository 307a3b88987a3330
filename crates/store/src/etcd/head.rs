//! Consistent reads share their question to the quorum: whoever asks while one is under way shares the next one.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use crate::{Revision, StoreError};

/// The answer to a question covers everybody who had arrived before it was asked.
#[derive(Default)]
pub(crate) struct Head {
    arrivals: AtomicU64,
    last: Mutex<Answer>,
}

#[derive(Default)]
struct Answer {
    covers: u64,
    revision: Option<Revision>,
    error: String,
}

impl Head {
    /// The cluster's revision at some time after this call, by `ask` or by an equal question of somebody else.
    pub async fn revision(
        &self,
        ask: impl AsyncFnOnce() -> Result<Revision, StoreError>,
    ) -> Result<Revision, StoreError> {
        let ticket = self.arrivals.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        if last.covers < ticket {
            let covers = self.arrivals.load(Ordering::SeqCst);
            let answer = ask().await;
            let error = answer.as_ref().err().map_or_else(String::new, ToString::to_string);
            *last = Answer {
                covers,
                revision: answer.as_ref().ok().copied(),
                error,
            };
            return answer;
        }
        last.revision.ok_or_else(|| StoreError::Unavailable(last.error.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn many_readers_at_once_ask_twice_and_nobody_gets_an_answer_to_an_earlier_question() {
        let head = Head::default();
        let clock = Cell::new(0);
        let asked = Cell::new(0);
        let read = async |begin_after: usize| {
            for _ in 0..begin_after {
                yield_now().await;
            }
            clock.set(clock.get() + 1);
            let arrived = clock.get();
            let answer = head.revision(async || {
                asked.set(asked.get() + 1);
                clock.set(clock.get() + 1);
                let now = clock.get();
                for _ in 0..10 {
                    yield_now().await;
                }
                Ok(now)
            });
            assert!(answer.await.unwrap() > arrived);
        };
        join_all((0..9).map(read)).await;
        assert_eq!(
            asked.get(),
            2,
            "the first one's question, and one for all who came during it"
        );
    }

    #[tokio::test]
    async fn a_failure_is_shared_as_well() {
        let head = Head::default();
        let fail = || {
            head.revision(async || {
                yield_now().await;
                Err(StoreError::Unavailable("etcd is away".into()))
            })
        };
        let answers = join_all((0..3).map(|_| fail())).await;
        assert!(
            answers
                .iter()
                .all(|answer| matches!(answer, Err(StoreError::Unavailable(_))))
        );
    }
}
