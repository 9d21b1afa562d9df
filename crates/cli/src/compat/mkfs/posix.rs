//! POSIX extended regular expressions, as `--exclude-regex` and `--compress-hints` take them, in the words of
//! the `regex` crate.
//!
//! They differ within brackets, where POSIX knows no escapes and no set operations, and in what escaped
//! letters mean.

use regex::bytes::Regex;

/// The expression `text`, over bytes; `None` if it is none.
pub(super) fn regex(text: &str) -> Option<Regex> {
    Regex::new(&format!("(?s-u:{})", translate(text)?)).ok()
}

fn translate(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next()? {
                // GNU's additions to POSIX.
                c @ ('w' | 'W' | 's' | 'S' | 'b' | 'B') => out.extend(['\\', c]),
                '<' => out.push_str(r"\b{start}"),
                '>' => out.push_str(r"\b{end}"),
                '`' => out.push_str(r"\A"),
                '\'' => out.push_str(r"\z"),
                // A back reference, which takes more than a regular expression.
                '1'..='9' => return None,
                c => push_literal(&mut out, c),
            },
            '(' => {
                // What follows is no flag, nor a name.
                let start = if rest.peek() == Some(&'?') { return None } else { "(" };
                out.push_str(start);
            }
            '[' => bracket(&mut rest, &mut out)?,
            '{' if !rest.peek().is_some_and(|c| c.is_ascii_digit() || *c == ',') => out.push_str(r"\{"),
            '{' if rest.peek() == Some(&',') => out.push_str("{0"),
            c => out.push(c),
        }
    }
    Some(out)
}

/// A bracket expression, from behind its first `[`.
fn bracket(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) -> Option<()> {
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        match rest.next()? {
            ']' if !first => break,
            '[' if rest.peek() == Some(&':') => {
                let mut name = String::from("[");
                while !name.ends_with(":]") || name.len() < 4 {
                    name.push(rest.next()?);
                }
                out.push_str(&name);
            }
            // Collating symbols and classes depend on a locale.
            '[' if matches!(rest.peek(), Some('.' | '=')) => return None,
            '-' => out.push(if first || rest.peek() == Some(&']') { '\u{0}' } else { '-' }),
            c => push_literal(out, c),
        }
        if out.ends_with('\u{0}') {
            out.pop();
            out.push_str(r"\-");
        }
        first = false;
    }
    out.push(']');
    Some(())
}

fn push_literal(out: &mut String, c: char) {
    if c.is_ascii_punctuation() {
        out.push('\\');
    }
    out.push(c);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(regex: &str, text: &str) -> bool {
        super::regex(regex).unwrap().is_match(text.as_bytes())
    }

    #[test]
    fn means_what_posix_means() {
        assert!(matches("^dir/.*", "dir/a") && !matches("^dir/.*", "a/dir/b"));
        assert!(matches(r"\.(o|ko)$", "a/b.ko") && !matches(r"\.(o|ko)$", "bko"));
        assert!(matches(r"[\]", r"\") && matches("[]a]", "]") && !matches("[^]a]", "]"));
        assert!(matches("[a-c-]", "-") && matches("[-a]", "-") && matches("[[:digit:]]+x", "42x"));
        assert!(matches("[a&&b]", "&") && matches("[[]", "["));
        assert!(matches("a{2}", "aa") && !matches("a{2}", "a") && matches("^a{,1}$", ""));
        assert!(matches("a.b", "a\nb") && matches("a{b", "a{b") && matches(r"\d", "d"));
        assert!(matches(r"\<lib", "usr/lib"));
    }

    #[test]
    fn is_refused_when_it_is_none() {
        for bad in ["(", "[a", "a**(", r"(a)\1", "(?i)a", "[[.a.]]", "\\"] {
            assert!(regex(bad).is_none(), "{bad}");
        }
    }
}
