//! How this process takes memory from the kernel.
//!
//! The allocator asks for huge pages, and an idle cluster then holds four times the memory that it uses: every
//! two mebibytes of which some bytes are used count whole.

/// Runs before the allocator's own start, which touches its first pages.
#[used]
#[unsafe(link_section = ".init_array.00100")]
static BEFORE_MAIN: extern "C" fn() = take_small_pages;

/// Children inherit this; the runtime's supervisors take it back for the programs of containers.
extern "C" fn take_small_pages() {
    // SAFETY: takes integers only. Where the kernel does not know it, memory is merely taken in larger steps.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn huge_pages_are_off_before_main() {
        // SAFETY: takes integers only.
        let disabled = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) };
        assert_ne!(disabled, 0);
    }
}
