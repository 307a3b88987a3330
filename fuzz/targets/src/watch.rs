//! One input under watch: how long it took and how much memory it held at its worst.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use crate::Target;

/// What an input may take of a processor, however slow the build.
pub const MAX_TIME: Duration = Duration::from_secs(2);
/// What an input may hold, beside a multiple of its length.
pub const MAX_BYTES: usize = 16 << 20;
/// The shortest element of JSON is a byte or two, and a value of it in memory some dozens, with its map several hundreds.
pub const MAX_BYTES_PER_BYTE: usize = 1000;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator with a count by thread. Programs that watch inputs make it theirs.
pub struct Counting;

fn count(bytes: isize) {
    // A thread that ends allocates nothing that would matter.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: everything is the system allocator's; the counts touch neither pointers nor the allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What an input took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub time: Duration,
    pub bytes: usize,
}

/// Runs one input; panics if it took too much. The memory is known only in programs with [`Counting`].
pub fn run(target: &Target, data: &[u8]) -> Cost {
    let held = HELD.get();
    MOST.set(held);
    let begun = busy();
    (target.run)(data);
    let cost = Cost {
        time: busy().saturating_sub(begun),
        bytes: (MOST.get() - held).max(0) as usize,
    };
    assert!(cost.time <= MAX_TIME, "{} took {:?}", target.name, cost.time);
    let allowed = MAX_BYTES + data.len() * MAX_BYTES_PER_BYTE;
    assert!(cost.bytes <= allowed, "{} held {} bytes", target.name, cost.bytes);
    cost
}

/// The time that this thread had a processor, so that a busy machine does not look like a slow reader.
fn busy() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time` and keeps nothing of it.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "every thread has a clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
