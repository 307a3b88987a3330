//! Log lines, to standard error. Nothing fails because one cannot be written: a full disk or a closed pipe behind them
//! must not end the thread that had something to say.

use std::borrow::Cow;
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
        .with_writer(BestEffort { output, colours })
}

/// Writes as far as it goes and says that everything went well.
struct BestEffort<W> {
    output: fn() -> W,
    colours: bool,
}

/// Takes one event at a time, which is one line.
struct Unfailing<W> {
    output: W,
    colours: bool,
}

impl<'a, W: Write + 'a> MakeWriter<'a> for BestEffort<W> {
    type Writer = Unfailing<W>;

    fn make_writer(&'a self) -> Unfailing<W> {
        Unfailing {
            output: (self.output)(),
            colours: self.colours,
        }
    }
}

impl<W: Write> Write for Unfailing<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = match self.colours {
            true => self.output.write_all(line),
            false => self.output.write_all(&one_line(line)),
        };
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.output.flush();
        Ok(())
    }
}

/// The text without control characters but the last newline: names and messages in it may be anybody's, and must not look
/// like other events or reach the terminal of whoever reads the file.
fn one_line(line: &[u8]) -> Cow<'_, [u8]> {
    let (text, end) = match line.strip_suffix(b"\n") {
        Some(text) => (text, &b"\n"[..]),
        None => (line, &b""[..]),
    };
    if !text.iter().any(u8::is_ascii_control) {
        return Cow::Borrowed(line);
    }
    let mut escaped = Vec::with_capacity(line.len() + 16);
    for byte in text {
        match byte.is_ascii_control() {
            true => escaped.extend(byte.escape_ascii()),
            false => escaped.push(*byte),
        }
    }
    escaped.extend(end);
    Cow::Owned(escaped)
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
        let full = BestEffort {
            output: || FullDisk,
            colours: false,
        };
        let mut writer = full.make_writer();
        assert_eq!(writer.write(b"line").unwrap(), 4);
        writer.flush().unwrap();
        let logging = subscriber(LevelFilter::INFO, || FullDisk, false).finish();
        tracing::subscriber::with_default(logging, || tracing::error!("the disk is full"));
    }

    #[test]
    fn nobody_forges_a_line_by_a_name() {
        let forged = "key=x\n2026-11-18T10:00:00Z ERROR forged\u{1b}[31mred\r\n".as_bytes();
        let expected = b"key=x\\n2026-11-18T10:00:00Z ERROR forged\\x1b[31mred\\r\n";
        assert_eq!(one_line(forged).as_ref(), expected.as_slice());
        assert!(matches!(one_line("caf\u{e9}\n".as_bytes()), Cow::Borrowed(_)));
    }
}
