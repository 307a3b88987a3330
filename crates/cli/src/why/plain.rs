//! Text of objects and logs without what a terminal would obey.
//!
//! Whoever may write a name, an event or a log line must not move the cursor, set the title or hide words of whoever
//! reads it.

/// One line of at most `max` characters.
pub fn line(text: &str, max: usize) -> String {
    let mut plain = String::with_capacity(text.len().min(max));
    let mut count = 0;
    let mut rest = text.trim().chars();
    while let Some(char) = rest.next() {
        if count == max {
            plain.push('…');
            break;
        }
        match char {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_control_sequence(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut rest),
            char if char.is_whitespace() => {
                if !plain.ends_with(' ') {
                    plain.push(' ');
                    count += 1;
                }
            }
            char if is_hidden(char) => (),
            char => {
                plain.push(char);
                count += 1;
            }
        }
    }
    plain
}

/// Controls, and what changes the direction of text or cannot be seen.
fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(char,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// What follows ESC.
fn skip_escape(rest: &mut std::str::Chars<'_>) {
    let mut ahead = rest.clone();
    match ahead.next() {
        Some('[') => {
            *rest = ahead;
            skip_control_sequence(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            *rest = ahead;
            skip_string(rest);
        }
        // Intermediate characters, such as those that choose a character set, come before the final one.
        Some(' '..='/') => {
            ahead.next();
            *rest = ahead;
        }
        Some('0'..='~') => *rest = ahead,
        _ => (),
    }
}

/// Parameters, up to a final character.
fn skip_control_sequence(rest: &mut std::str::Chars<'_>) {
    for char in rest.by_ref() {
        if !matches!(char, ' '..='?') {
            return;
        }
    }
}

/// Up to BEL or the string terminator. Without one, the terminal would swallow everything, and so does this.
fn skip_string(rest: &mut std::str::Chars<'_>) {
    let mut is_escaped = false;
    for char in rest.by_ref() {
        match char {
            '\u{7}' | '\u{9c}' => return,
            '\\' if is_escaped => return,
            char => is_escaped = char == '\u{1b}',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn nothing_is_left_that_a_terminal_would_obey() {
        let cases = [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://evil\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{9b}2Jclear", "clear"),
            ("\u{1b}Pq#payload\u{1b}\\x", "x"),
            ("a\rb\nc\td", "a b c d"),
            ("bell\u{7}\u{8}\u{7f}", "bell"),
            ("\u{202e}gpj.exe", "gpj.exe"),
            ("zero\u{200b}width", "zerowidth"),
            ("\u{1b}(0lqk", "lqk"),
            ("\u{1b}", ""),
            ("한글 ok", "한글 ok"),
        ];
        for (text, expected) in cases {
            assert_eq!(line(text, 100), expected, "{text:?}");
        }
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(line("abcdef", 3), "abc…");
        assert_eq!(line("abc", 3), "abc");
    }
}
