//! Translates the POSIX extended regular expressions of `--exclude-regex` to the syntax of the
//! `regex` crate.
//!
//! The syntaxes differ in brackets, where POSIX has no escapes and no set operations, and in the
//! meaning of escaped letters.

use regex::bytes::Regex;

/// Compiles the expression `text` for bytes; `None` if it is not a POSIX extended regular
/// expression.
pub(super) fn regex(text: &str) -> Option<Regex> {
    Regex::new(&format!("(?s-u:{})", translate(text)?)).ok()
}

fn translate(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next()? {
                // Extensions of GNU.
                c @ ('w' | 'W' | 's' | 'S' | 'b' | 'B') => out.extend(['\\', c]),
                '<' => out.push_str(r"\b{start}"),
                '>' => out.push_str(r"\b{end}"),
                '`' => out.push_str(r"\A"),
                '\'' => out.push_str(r"\z"),
                // Back references are not supported.
                '1'..='9' => return None,
                c => push_literal(&mut out, c),
            },
            // The regex crate would read flags or a name; POSIX has neither.
            '(' if rest.peek() == Some(&'?') => return None,
            '[' => bracket(&mut rest, &mut out)?,
            '{' if !rest.peek().is_some_and(|c| c.is_ascii_digit() || *c == ',') => {
                out.push_str(r"\{")
            }
            '{' if rest.peek() == Some(&',') => out.push_str("{0"),
            c => out.push(c),
        }
    }
    Some(out)
}

/// Translates a bracket expression; `rest` starts after its `[`.
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
            // Collating symbols and equivalence classes depend on a locale, so they are not
            // supported.
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
    fn expressions_match_as_posix_defines() {
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
    fn wrong_and_unsupported_expressions_are_refused() {
        for bad in ["(", "[a", "a**(", r"(a)\1", "(?i)a", "[[.a.]]", "\\"] {
            assert!(regex(bad).is_none(), "{bad}");
        }
    }
}
