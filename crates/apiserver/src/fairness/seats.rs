//! The seats of all priority levels: who runs, who waits, who is next.
//!
//! A level owns a share of the server's seats and may borrow the lendable ones that others leave idle; an owner that
//! comes back need not wait for borrowers. Within a level, the queue that was served least goes first, where service is
//! the time its requests took, times the seats they held.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::plan::Queuing;
use super::shuffle;

/// What a request is taken to last until it has ended.
const EXPECTED: Duration = Duration::from_millis(5);

/// What a PriorityLevelConfiguration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelSettings {
    pub exempt: bool,
    pub shares: usize,
    pub lendable_percent: usize,
    pub borrowing_limit_percent: Option<usize>,
    pub queuing: Option<Queuing>,
}

pub struct Seats {
    total: usize,
    book: Mutex<Levels>,
}

type Levels = HashMap<Arc<str>, Level>;

/// A way in.
pub enum Entry {
    /// The level is exempt: nothing is counted.
    Free,
    Now(Ticket),
    /// The ticket comes when it is this request's turn.
    Later(oneshot::Receiver<Ticket>),
    Full,
}

/// Held seats. Dropping it lets the next one in.
pub struct Ticket {
    seats: Arc<Seats>,
    level: Arc<str>,
    queue: Option<usize>,
    width: usize,
    begun: Instant,
}

/// The state of a level, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelReport {
    pub level: Arc<str>,
    pub nominal: usize,
    pub executing: usize,
    pub waiting: usize,
    pub dispatched: u64,
    pub rejected: u64,
}

struct Level {
    settings: LevelSettings,
    nominal: usize,
    lendable: usize,
    limit: usize,
    executing: usize,
    waiting: usize,
    queues: Vec<Queue>,
    /// How much the queue that was last chosen had been served; a queue that was idle starts here.
    clock: Duration,
    dispatched: u64,
    rejected: u64,
}

/// A request in a queue, and how many seats it needs.
struct Waiting {
    turn: oneshot::Sender<Ticket>,
    width: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    executing: usize,
    served: Duration,
}

impl Seats {
    pub fn new(total: usize) -> Seats {
        Seats {
            total,
            book: Mutex::default(),
        }
    }

    /// Takes in new settings. A level that is gone turns its waiting requests away and lets the running ones end.
    pub fn configure(&self, levels: impl Iterator<Item = (Arc<str>, LevelSettings)>) {
        let levels: Vec<(Arc<str>, LevelSettings)> = levels.collect();
        let shares: usize = levels.iter().map(|(_, settings)| settings.shares).sum();
        let mut book = self.book.lock();
        let mut old = std::mem::take(&mut *book);
        for (name, settings) in levels {
            let mut level = old.remove(&name).unwrap_or_else(|| Level::new(settings));
            level.configure(settings, (self.total * settings.shares).div_ceil(shares.max(1)));
            book.insert(name, level);
        }
    }

    /// `width` is how many seats the request takes; never more than the level owns.
    pub fn enter(self: &Arc<Self>, name: &Arc<str>, flow: u64, width: usize) -> Entry {
        let mut book = self.book.lock();
        let width = book
            .get(name)
            .map_or(width, |level| width.clamp(1, level.nominal.max(1)));
        let has_seats = has_seats(&book, name, width);
        let Some(level) = book.get_mut(name).filter(|level| !level.settings.exempt) else {
            return Entry::Free;
        };
        let queue = level.choose(flow);
        if level.waiting == 0 && has_seats {
            level.start(queue, width);
            return Entry::Now(self.ticket(name, queue, width));
        }
        match queue.and_then(|queue| level.join(queue, width)) {
            Some(turn) => Entry::Later(turn),
            None => {
                level.rejected += 1;
                Entry::Full
            }
        }
    }

    pub fn report(&self) -> Vec<LevelReport> {
        let report = |(name, level): (&Arc<str>, &Level)| LevelReport {
            level: name.clone(),
            nominal: level.nominal,
            executing: level.executing,
            waiting: level.waiting,
            dispatched: level.dispatched,
            rejected: level.rejected,
        };
        let mut levels: Vec<LevelReport> = self.book.lock().iter().map(report).collect();
        levels.sort_by(|one, other| one.level.cmp(&other.level));
        levels
    }

    fn ticket(self: &Arc<Self>, level: &Arc<str>, queue: Option<usize>, width: usize) -> Ticket {
        Ticket {
            seats: self.clone(),
            level: level.clone(),
            queue,
            width,
            begun: Instant::now(),
        }
    }

    /// Hands free seats to those who wait; returns the tickets of requests that went away meanwhile.
    fn hand_out(self: &Arc<Self>, book: &mut Levels) -> Vec<Ticket> {
        let mut unclaimed = Vec::new();
        let waiting: Vec<Arc<str>> = book
            .iter()
            .filter(|(_, level)| level.waiting > 0)
            .map(|(name, _)| name.clone())
            .collect();
        for name in waiting {
            // Whoever is next waits for as many seats as it needs; nobody narrower goes past it for ever.
            while let Some(width) = book.get_mut(&name).and_then(Level::next_width) {
                let has_seats = has_seats(book, &name, width);
                let Some(level) = book.get_mut(&name).filter(|_| has_seats) else {
                    break;
                };
                let Some((queue, Waiting { turn, width })) = level.next() else {
                    break;
                };
                level.start(Some(queue), width);
                if let Err(ticket) = turn.send(self.ticket(&name, Some(queue), width)) {
                    unclaimed.push(ticket);
                    break;
                }
            }
        }
        unclaimed
    }
}

/// Whether one more request of a level may run, on seats of the level's own or on borrowed ones.
fn has_seats(book: &Levels, name: &Arc<str>, width: usize) -> bool {
    book.get(name).is_some_and(|level| {
        let taken = level.executing + width;
        let lacking = taken.saturating_sub(level.executing.max(level.nominal));
        taken <= level.nominal || (taken <= level.limit && borrowable(book, name) >= lacking)
    })
}

/// Seats that others leave idle and lend, and that nobody has borrowed.
fn borrowable(book: &Levels, name: &Arc<str>) -> usize {
    let idle: usize = book
        .iter()
        .filter(|(other, _)| *other != name)
        .map(|(_, level)| level.lendable.min(level.nominal.saturating_sub(level.executing)))
        .sum();
    let borrowed: usize = book
        .values()
        .map(|level| level.executing.saturating_sub(level.nominal))
        .sum();
    idle.saturating_sub(borrowed)
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let unclaimed = {
            let mut book = self.seats.book.lock();
            if let Some(level) = book.get_mut(&self.level) {
                level.finish(self.queue, self.width, self.begun.elapsed());
            }
            self.seats.hand_out(&mut book)
        };
        // Dropped only now: each of them takes the lock again.
        drop(unclaimed);
    }
}

impl Level {
    fn new(settings: LevelSettings) -> Level {
        Level {
            settings,
            nominal: 0,
            lendable: 0,
            limit: 0,
            executing: 0,
            waiting: 0,
            queues: Vec::new(),
            clock: Duration::ZERO,
            dispatched: 0,
            rejected: 0,
        }
    }

    fn configure(&mut self, settings: LevelSettings, nominal: usize) {
        let percent = |percent: usize| (nominal * percent + 50) / 100;
        self.settings = settings;
        // A level with work always moves, however small its share is.
        self.nominal = nominal.max(usize::from(!settings.exempt));
        self.lendable = percent(settings.lendable_percent);
        self.limit = settings
            .borrowing_limit_percent
            .map_or(usize::MAX, |limit| self.nominal + percent(limit));
        let queues = settings.queuing.map_or(0, |queuing| queuing.queues);
        if queues != self.queues.len() && self.waiting == 0 && self.executing == 0 {
            self.queues = std::iter::repeat_with(Queue::default).take(queues).collect();
        } else if queues > self.queues.len() {
            self.queues.resize_with(queues, Queue::default);
        }
    }

    /// The least busy queue of the flow's hand; none when requests of this level never wait.
    fn choose(&mut self, flow: u64) -> Option<usize> {
        let queuing = self.settings.queuing?;
        let hand = shuffle::deal(flow, queuing.queues.min(self.queues.len()), queuing.hand_size);
        hand.into_iter().min_by_key(|&queue| {
            let queue = &self.queues[queue];
            queue.waiting.len() + queue.executing
        })
    }

    fn join(&mut self, queue: usize, width: usize) -> Option<oneshot::Receiver<Ticket>> {
        let limit = self.settings.queuing?.queue_length_limit;
        let queue = self.queues.get_mut(queue)?;
        if queue.waiting.len() >= limit {
            let before = queue.waiting.len();
            queue.waiting.retain(|waiting| !waiting.turn.is_closed());
            self.waiting -= before - queue.waiting.len();
        }
        if queue.waiting.len() >= limit {
            return None;
        }
        if queue.waiting.is_empty() && queue.executing == 0 {
            queue.served = queue.served.max(self.clock);
        }
        let (turn, receiver) = oneshot::channel();
        queue.waiting.push_back(Waiting { turn, width });
        self.waiting += 1;
        Some(receiver)
    }

    /// How many seats the next request needs.
    fn next_width(&mut self) -> Option<usize> {
        let queue = self.next_queue()?;
        self.queues[queue].waiting.front().map(|waiting| waiting.width)
    }

    /// The next request, from the queue that was served least.
    fn next(&mut self) -> Option<(usize, Waiting)> {
        let at = self.next_queue()?;
        let queue = &mut self.queues[at];
        self.clock = self.clock.max(queue.served);
        let waiting = queue.waiting.pop_front()?;
        self.waiting -= 1;
        Some((at, waiting))
    }

    /// The queue that was served least, once those who went away are out of it.
    fn next_queue(&mut self) -> Option<usize> {
        loop {
            let (at, queue) = self
                .queues
                .iter_mut()
                .enumerate()
                .filter(|(_, queue)| !queue.waiting.is_empty())
                .min_by_key(|(_, queue)| queue.served)?;
            if queue.waiting.front().is_some_and(|waiting| !waiting.turn.is_closed()) {
                return Some(at);
            }
            queue.waiting.pop_front();
            self.waiting -= 1;
        }
    }

    fn start(&mut self, queue: Option<usize>, width: usize) {
        self.executing += width;
        self.dispatched += 1;
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            if queue.executing == 0 && queue.waiting.is_empty() {
                queue.served = queue.served.max(self.clock);
            }
            queue.executing += width;
            queue.served += EXPECTED * width as u32;
        }
    }

    fn finish(&mut self, queue: Option<usize>, width: usize, took: Duration) {
        self.executing = self.executing.saturating_sub(width);
        if let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.executing = queue.executing.saturating_sub(width);
            queue.served = (queue.served + took * width as u32).saturating_sub(EXPECTED * width as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(shares: usize, lendable_percent: usize, queuing: Option<Queuing>) -> LevelSettings {
        LevelSettings {
            exempt: false,
            shares,
            lendable_percent,
            borrowing_limit_percent: None,
            queuing,
        }
    }

    const QUEUES: Option<Queuing> = Some(Queuing {
        queues: 8,
        hand_size: 2,
        queue_length_limit: 3,
    });

    fn seats(total: usize, levels: &[(&str, LevelSettings)]) -> Arc<Seats> {
        let seats = Arc::new(Seats::new(total));
        seats.configure(levels.iter().map(|(name, settings)| ((*name).into(), *settings)));
        seats
    }

    fn now(seats: &Arc<Seats>, level: &str, flow: u64) -> Ticket {
        match seats.enter(&level.into(), flow, 1) {
            Entry::Now(ticket) => ticket,
            _ => panic!("no seat for flow {flow} in {level}"),
        }
    }

    fn later(seats: &Arc<Seats>, level: &str, flow: u64) -> oneshot::Receiver<Ticket> {
        match seats.enter(&level.into(), flow, 1) {
            Entry::Later(turn) => turn,
            _ => panic!("flow {flow} need not wait in {level}"),
        }
    }

    #[test]
    fn shares_become_seats_and_no_level_is_without() {
        let seats = seats(
            10,
            &[
                ("big", limited(3, 0, None)),
                ("none", limited(0, 0, None)),
                ("small", limited(1, 0, None)),
            ],
        );
        let nominal: Vec<usize> = seats.report().iter().map(|level| level.nominal).collect();
        assert_eq!(nominal, [8, 1, 3]);
    }

    #[test]
    fn a_level_without_queues_turns_away_what_finds_no_seat() {
        let seats = seats(1, &[("only", limited(1, 0, None))]);
        let held = now(&seats, "only", 1);
        assert!(matches!(seats.enter(&"only".into(), 2, 1), Entry::Full));
        drop(held);
        now(&seats, "only", 2);
        assert_eq!(seats.report()[0].rejected, 1);
    }

    #[test]
    fn a_greedy_flow_does_not_starve_a_modest_one() {
        let seats = seats(1, &[("only", limited(1, 0, QUEUES))]);
        let (greedy, modest) = (1, (2..100).find(|&flow| disjoint(1, flow)).unwrap());
        let held = now(&seats, "only", greedy);
        let mut waiting: Vec<_> = (0..6).map(|_| later(&seats, "only", greedy)).collect();
        assert!(
            matches!(seats.enter(&"only".into(), greedy, 1), Entry::Full),
            "its two queues are full"
        );
        let mut other = later(&seats, "only", modest);
        let mut seat = Some(held);
        for _ in 0..3 {
            drop(seat.take());
            if other.try_recv().is_ok() {
                return;
            }
            seat = waiting.iter_mut().find_map(|turn| turn.try_recv().ok());
        }
        panic!("a flow with one request waited for three of a flow with seven");
    }

    fn disjoint(one: u64, other: u64) -> bool {
        let hand = shuffle::deal(one, 8, 2);
        shuffle::deal(other, 8, 2).iter().all(|card| !hand.contains(card))
    }

    #[test]
    fn idle_seats_are_lent_and_an_owner_never_waits_for_them() {
        let seats = seats(
            4,
            &[("lender", limited(1, 50, QUEUES)), ("user", limited(1, 0, QUEUES))],
        );
        let held: Vec<Ticket> = (0..3).map(|flow| now(&seats, "user", flow)).collect();
        later(&seats, "user", 9);
        let own: Vec<Ticket> = (0..2).map(|flow| now(&seats, "lender", flow)).collect();
        drop((held, own));
        assert!(seats.report().iter().all(|level| level.executing == 0));
    }

    #[test]
    fn requests_that_went_away_leave_no_seat_taken() {
        let seats = seats(1, &[("only", limited(1, 0, QUEUES))]);
        let held = now(&seats, "only", 1);
        drop(later(&seats, "only", 2));
        drop(held);
        let report = &seats.report()[0];
        assert_eq!((report.executing, report.waiting), (0, 0));
    }

    #[test]
    fn a_level_that_goes_away_turns_its_queue_away() {
        let seats = seats(1, &[("only", limited(1, 0, QUEUES))]);
        let held = now(&seats, "only", 1);
        let mut turn = later(&seats, "only", 1);
        seats.configure(std::iter::empty());
        assert!(matches!(turn.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        drop(held);
    }

    #[test]
    fn a_wide_request_takes_many_seats_and_is_not_passed_by_narrow_ones() {
        let queuing = Queuing {
            queues: 1,
            hand_size: 1,
            queue_length_limit: 3,
        };
        let seats = seats(4, &[("only", limited(1, 0, Some(queuing)))]);
        let narrow = now(&seats, "only", 1);
        let Entry::Later(mut wide) = seats.enter(&"only".into(), 2, 4) else {
            panic!("three seats are not four");
        };
        let mut behind = later(&seats, "only", 2);
        drop(narrow);
        let held = wide.try_recv().expect("all four seats are free");
        assert_eq!(seats.report()[0].executing, 4);
        assert!(behind.try_recv().is_err());
        drop(held);
        assert!(behind.try_recv().is_ok());
    }

    #[test]
    fn no_request_needs_more_seats_than_its_level_owns() {
        let seats = seats(2, &[("only", limited(1, 0, QUEUES))]);
        let Entry::Now(held) = seats.enter(&"only".into(), 1, 10) else {
            panic!("an idle level takes every request");
        };
        assert_eq!(seats.report()[0].executing, 2);
        drop(held);
    }
}
