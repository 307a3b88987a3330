//! What commands print. A reader that has seen enough, such as `head -1`, ends nothing; neither does a full disk behind
//! the remarks of a server.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints a line of the command's result. A reader that went away is no error; a disk that is full is one, because
/// somebody wants the result.
pub fn result(line: impl Display) -> io::Result<()> {
    write_to(&mut io::stdout(), line)
}

/// Prints a remark for whoever watches.
pub fn remark(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn write_to(output: &mut dyn Write, line: impl Display) -> io::Result<()> {
    let written = writeln!(output, "{line}").and_then(|()| output.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_error_and_a_full_disk_is_one() {
        assert!(write_to(&mut Failing(ErrorKind::BrokenPipe), "x").is_ok());
        assert!(write_to(&mut Failing(ErrorKind::StorageFull), "x").is_err());
    }
}
