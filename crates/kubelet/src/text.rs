//! Small matters of wording.

use std::time::Duration;

/// A duration as Go prints it: `10s`, `1m20s`, `5m0s`, `1.5s`.
pub fn go_duration(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    if seconds == 0 {
        return match millis {
            0 => "0s".to_owned(),
            millis => format!("{millis}ms"),
        };
    }
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = match millis {
        0 => String::new(),
        millis => format!(".{millis:03}").trim_end_matches('0').to_owned(),
    };
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, minutes) => format!("{minutes}m{seconds}{fraction}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

/// The longest prefix of at most `limit` bytes that is still text.
pub fn truncate(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_upstream_prints_them() {
        let print = |millis| go_duration(Duration::from_millis(millis));
        assert_eq!(print(0), "0s");
        assert_eq!(print(250), "250ms");
        assert_eq!(print(1_500), "1.5s");
        assert_eq!(print(80_000), "1m20s");
        assert_eq!(print(300_000), "5m0s");
    }
}
