//! Users and passwords of hosts in `~/.netrc`, as curl and ftp(1) read it.

use std::path::PathBuf;

/// The user and the password for `host` in the file of the variable `NETRC`, or else in `~/.netrc`. `None` without such a file or entry.
pub(super) fn find(host: &str) -> Option<(String, String)> {
    let path = |variable: &str| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = path("NETRC").or_else(|| path("HOME").map(|home| home.join(".netrc")))?;
    entry(&std::fs::read_to_string(path).ok()?, host)
}

/// The entry for `host`, or else the default entry.
fn entry(text: &str, host: &str) -> Option<(String, String)> {
    let mut is_meant = false;
    let (mut user, mut password) = (None, None);
    // Macros end with an empty line.
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "machine" | "default" if is_meant => return Some((user?, password.unwrap_or_default())),
                "machine" => is_meant = words.next() == Some(host),
                "default" => is_meant = true,
                "login" if is_meant => user = words.next().map(str::to_owned),
                "password" if is_meant => password = words.next().map(str::to_owned),
                "login" | "password" | "account" => drop(words.next()),
                "macdef" => {
                    lines.by_ref().find(|line| line.trim().is_empty());
                    break;
                }
                // The rest of the line is a comment.
                comment if comment.starts_with('#') => break,
                _ => {}
            }
        }
    }
    is_meant.then(|| Some((user?, password.unwrap_or_default()))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_hosts() {
        let text = "# comment machine b\nmachine a login me password p1 machine b\n  login you\n  password p2\n\
            macdef init\nmachine c login x password y\n\nmachine d password only\ndefault login any password p3\n";
        let find = |host| entry(text, host).map(|(user, password)| format!("{user}:{password}"));
        assert_eq!(find("a").as_deref(), Some("me:p1"));
        assert_eq!(find("b").as_deref(), Some("you:p2"));
        assert_eq!(find("c").as_deref(), Some("any:p3"), "in a macro");
        assert_eq!(find("d"), None, "without a user");
        assert_eq!(entry("machine a login me", "a"), Some(("me".into(), String::new())));
        assert_eq!(entry("machine", "a"), None);
        assert_eq!(entry("", "a"), None);
    }
}
