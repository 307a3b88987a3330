//! Log lines, to standard error. Nothing fails because one cannot be written: a full disk or a closed pipe behind them
//! must not end the thread that had something to say.

use std::io::{self, IsTerminal, Write};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format};

pub fn init(level: impl Into<LevelFilter>) {
    // Colours are for people; in a file they are noise.
    subscriber(level, io::stderr, io::stderr().is_terminal()).init();
}

fn subscriber<W: Write + 'static>(
    level: impl Into<LevelFilter>,
    output: fn() -> W,
    colours: bool,
) -> SubscriberBuilder<DefaultFields, Format, LevelFilter, BestEffort<W>> {
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(colours)
        // It would complain to standard error, and panic where that fails too.
        .log_internal_errors(false)
        .with_writer(BestEffort(output))
}

/// Writes as far as it goes and says that everything went well.
struct BestEffort<W>(fn() -> W);

struct Unfailing<W>(W);

impl<'a, W: Write + 'a> MakeWriter<'a> for BestEffort<W> {
    type Writer = Unfailing<W>;

    fn make_writer(&'a self) -> Unfailing<W> {
        Unfailing((self.0)())
    }
}

impl<W: Write> Write for Unfailing<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk without space, such as the one that holds the log file.
    struct FullDisk;

    impl Write for FullDisk {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }
    }

    #[test]
    fn a_log_line_that_cannot_be_written_fails_nothing() {
        let mut writer = BestEffort(|| FullDisk).make_writer();
        assert_eq!(writer.write(b"line").unwrap(), 4);
        writer.flush().unwrap();
        let logging = subscriber(LevelFilter::INFO, || FullDisk, false).finish();
        tracing::subscriber::with_default(logging, || tracing::error!("the disk is full"));
    }
}
