//! The tasks of one worker: at most one of a kind is under way, and only the newest may report.

use std::collections::HashMap;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::{Done, Message};
use crate::plan::Task;

/// Tells one run of a task from those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskId(u64);

pub struct Tasks {
    running: HashMap<Task, Running>,
    started: u64,
    sender: mpsc::Sender<Message>,
}

struct Running {
    id: TaskId,
    task: AbortHandle,
}

impl Tasks {
    /// Tasks report their end to `sender`.
    pub fn new(sender: mpsc::Sender<Message>) -> Tasks {
        Tasks {
            running: HashMap::new(),
            started: 0,
            sender,
        }
    }

    /// Where others report to the same worker.
    pub fn sender(&self) -> mpsc::Sender<Message> {
        self.sender.clone()
    }

    /// Starts a task in place of one like it, such as a kill with a shorter grace period.
    pub fn start(&mut self, task: Task, work: impl Future<Output = Done> + Send + 'static) {
        self.started += 1;
        let id = TaskId(self.started);
        let (sender, reported) = (self.sender.clone(), task.clone());
        let running = tokio::spawn(async move {
            let done = work.await;
            let _ = sender.send(Message::Done(reported, id, done)).await;
        });
        let running = Running {
            id,
            task: running.abort_handle(),
        };
        if let Some(replaced) = self.running.insert(task, running) {
            replaced.task.abort();
        }
    }

    /// Ends a task whose result nobody needs any more.
    pub fn cancel(&mut self, task: &Task) {
        if let Some(running) = self.running.remove(task) {
            running.task.abort();
        }
    }

    /// Whether a report is from the task that is under way, which it then no longer is. A task that was cancelled or
    /// replaced may have reported just before; its report must end nothing but itself.
    pub fn is_current_end(&mut self, task: &Task, id: TaskId) -> bool {
        let current = self.running.get(task).is_some_and(|running| running.id == id);
        if current {
            self.running.remove(task);
        }
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn next_report(mailbox: &mut mpsc::Receiver<Message>) -> (Task, TaskId) {
        match mailbox.recv().await {
            Some(Message::Done(task, id, _)) => (task, id),
            _ => panic!("tasks only report their end"),
        }
    }

    #[tokio::test]
    async fn the_late_report_of_a_replaced_task_does_not_end_its_successor() {
        let (sender, mut mailbox) = mpsc::channel(8);
        let mut tasks = Tasks::new(sender);
        let task = Task::Kill("c1".to_owned());
        tasks.start(task.clone(), async { Done::Plain(Ok(())) });
        // It has reported, and nobody has read its report when it is replaced.
        let (reported, late) = next_report(&mut mailbox).await;
        tasks.start(task.clone(), std::future::pending());
        assert!(!tasks.is_current_end(&reported, late));
        assert!(tasks.running.contains_key(&task), "the successor is still under way");
        tasks.start(task.clone(), async { Done::Plain(Ok(())) });
        let (reported, id) = next_report(&mut mailbox).await;
        assert!(tasks.is_current_end(&reported, id));
        assert!(!tasks.is_current_end(&reported, id), "a task ends once");
    }

    #[tokio::test]
    async fn the_late_report_of_a_cancelled_task_counts_for_nothing() {
        let (sender, mut mailbox) = mpsc::channel(8);
        let mut tasks = Tasks::new(sender);
        let task = Task::Image("c".to_owned());
        tasks.start(task.clone(), async { Done::Plain(Ok(())) });
        let (reported, late) = next_report(&mut mailbox).await;
        tasks.cancel(&task);
        assert!(!tasks.is_current_end(&reported, late));
        tasks.start(task.clone(), std::future::pending());
        assert!(!tasks.is_current_end(&reported, late));
    }
}
