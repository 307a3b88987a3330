//! The numbers of system calls.

use std::collections::HashMap;

use super::Architecture;

/// One row per name and one column per architecture.
const TABLE: &str = include_str!("syscalls.tsv");

/// What the kernel adds to the numbers of x32, whose programs otherwise look like x86_64's.
pub const X32_BIT: u32 = 0x4000_0000;

/// The calls of one architecture, by name.
pub fn numbers(architecture: Architecture) -> HashMap<&'static str, u32> {
    let (column, base) = match architecture {
        Architecture::X86_64 => (1, 0),
        Architecture::X86 => (2, 0),
        Architecture::X32 => (3, X32_BIT),
        Architecture::Aarch64 => (4, 0),
        Architecture::Arm => (5, 0),
        Architecture::Riscv64 => (6, 0),
    };
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let mut cells = row.split('\t');
        let name = cells.next()?;
        Some((name, base + cells.nth(column - 1)?.parse::<u32>().ok()?))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_numbers_this_program_was_built_with() {
        let native = numbers(Architecture::native());
        for (name, number) in [
            ("read", libc::SYS_read),
            ("clone3", libc::SYS_clone3),
            ("socket", libc::SYS_socket),
            ("mseal", libc::SYS_mseal),
            ("openat2", libc::SYS_openat2),
        ] {
            assert_eq!(native[name], number as u32, "{name}");
        }
    }

    #[test]
    fn every_row_has_a_cell_for_each_architecture_and_no_number_is_given_twice() {
        assert!(
            TABLE
                .lines()
                .all(|line| line.starts_with('#') || line.split('\t').count() == 7)
        );
        use Architecture::{Aarch64, Arm, Riscv64, X32, X86, X86_64};
        for architecture in [X86_64, X86, X32, Aarch64, Arm, Riscv64] {
            let numbers = numbers(architecture);
            let distinct: std::collections::HashSet<_> = numbers.values().collect();
            assert!(
                numbers.len() > 300 && distinct.len() == numbers.len(),
                "{architecture:?}"
            );
        }
    }
}
