//! `http://` and `https://`: the address is the object; credentials come with the address, from the
//! caller or from a netrc file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use url::Url;

use super::object::{Access, Target};
use crate::error::{Error, FetchErrorKind, Result};

/// The credentials for requests to a web server.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WebOptions {
    /// User and password (RFC 7617). Those in the address take precedence.
    pub user: Option<(String, String)>,
    /// A file with a token (RFC 6750). It is read again when the server does not accept the token
    /// any more.
    pub token_file: Option<PathBuf>,
    /// Without other credentials, take those of `~/.netrc`.
    pub netrc: bool,
    /// More headers.
    pub headers: Vec<(String, String)>,
}

impl WebOptions {
    /// The token in the file.
    ///
    /// # Errors
    /// [`Error::Credentials`] if the file cannot be read.
    pub fn token(&self) -> Result<Option<String>> {
        self.token_file.as_deref().map(read_token).transpose()
    }
}

fn read_token(path: &Path) -> Result<String> {
    let wrong = |problem: String| Error::Credentials { path: path.into(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let token = text.trim();
    // Anything else would end the header.
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("has no token".into()));
    }
    Ok(token.to_owned())
}

/// An object at an address of the web.
pub struct WebAccess {
    target: Target,
    location: String,
    /// The token, its number, and its file.
    token: Option<(Mutex<(String, u64)>, PathBuf)>,
}

impl WebAccess {
    /// The object at `address`.
    ///
    /// # Errors
    /// [`Error::Location`] for an address that cannot be parsed.
    pub fn new(address: &str, options: &WebOptions) -> Result<Self> {
        let wrong = |problem| Error::Location { location: without_password(address), problem };
        let mut url = Url::parse(address).map_err(|_| wrong("is not an address"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("is not the address of a web server"));
        }
        let decoded = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8().map(String::from);
            decoded.map_err(|_| wrong("has a user or a password that is not UTF-8"))
        };
        let user = match (url.username(), url.password()) {
            ("", None) => options.user.clone(),
            (user, password) => Some((decoded(user)?, decoded(password.unwrap_or_default())?)),
        };
        // They cannot fail for an address with a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        let mut headers = options.headers.clone();
        let mut token_file = None;
        if let Some((user, password)) = user {
            headers.push(("Authorization".into(), basic(&user, &password)));
        } else if let Some(path) = &options.token_file {
            token_file = Some((Mutex::new((read_token(path)?, 0)), path.clone()));
        } else if options.netrc
            && let Some((user, password)) = url.host_str().and_then(netrc_entry)
        {
            headers.push(("Authorization".into(), basic(&user, &password)));
        }
        let location = without_query(&url);
        Ok(Self {
            target: Target { url: url.into(), headers, credentials: 0 },
            location,
            token: token_file,
        })
    }
}

impl Access for WebAccess {
    fn target(&self, _: Instant) -> Result<Target, FetchErrorKind> {
        let mut target = self.target.clone();
        if let Some((token, _)) = &self.token {
            let token = token.lock();
            target.headers.push(("Authorization".into(), bearer(&token.0)));
            target.credentials = token.1;
        }
        Ok(target)
    }

    fn refused(&self, target: &Target, status: u16, _: Option<&str>) -> bool {
        let Some((token, path)) = self.token.as_ref().filter(|_| status == 401) else {
            return false;
        };
        // A file that cannot be read gives no other token.
        let Ok(read) = read_token(path) else { return false };
        let mut token = token.lock();
        if token.0 != read {
            *token = (read, token.1.wrapping_add(1));
        }
        token.1 != target.credentials
    }

    fn location(&self) -> &str {
        &self.location
    }
}

/// The value of the header `Authorization` for a token.
pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// The value of the header `Authorization` for a user and a password.
pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// An address without its query, which may have a signature.
fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    let had_query = url.query().is_some();
    url.set_query(None);
    format!("{url}{}", if had_query { "?..." } else { "" })
}

/// An address that cannot be parsed, without what may be a password or a signature.
pub(crate) fn without_password(address: &str) -> String {
    if address.contains('@') {
        let scheme = address.split_once("://").map_or("", |(scheme, _)| scheme);
        return format!("{scheme}://...");
    }
    address.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// The user and the password for `host` in the file of the variable `NETRC`, or else in `~/.netrc`,
/// as curl and ftp(1) read it. `None` without such a file or entry.
fn netrc_entry(host: &str) -> Option<(String, String)> {
    let path = |variable: &str| {
        std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
    };
    let path = path("NETRC").or_else(|| path("HOME").map(|home| home.join(".netrc")))?;
    entry_of(&std::fs::read_to_string(path).ok()?, host)
}

/// The entry for `host`, or else the default entry.
fn entry_of(text: &str, host: &str) -> Option<(String, String)> {
    let mut is_meant = false;
    let (mut user, mut password) = (None, None);
    // Macros end with an empty line.
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "machine" | "default" if is_meant => {
                    return Some((user?, password.unwrap_or_default()));
                }
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
    fn credentials_are_sent_and_never_shown() {
        let access = WebAccess::new(
            "https://me:p%40ss@host:8443/a/b.erofs?sig=secret#x",
            &WebOptions::default(),
        )
        .unwrap();
        assert_eq!(access.location(), "https://host:8443/a/b.erofs?...");
        let target = access.target(Instant::now()).unwrap();
        assert_eq!(target.url, "https://host:8443/a/b.erofs?sig=secret");
        assert_eq!(target.headers, [("Authorization".to_owned(), basic("me", "p@ss"))]);
        assert_eq!(basic("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        for wrong in ["http://", "ftp://me:secret@host/x", "https://me:secret@ho st/", "file:///x"]
        {
            let error = WebAccess::new(wrong, &WebOptions::default()).err().unwrap().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn entries_of_hosts() {
        let text = "# comment machine b\nmachine a login me password p1 machine b\n  login you\n  password p2\n\
            macdef init\nmachine c login x password y\n\nmachine d password only\ndefault login any password p3\n";
        let find = |host| entry_of(text, host).map(|(user, password)| format!("{user}:{password}"));
        assert_eq!(find("a").as_deref(), Some("me:p1"));
        assert_eq!(find("b").as_deref(), Some("you:p2"));
        assert_eq!(find("c").as_deref(), Some("any:p3"), "in a macro");
        assert_eq!(find("d"), None, "without a user");
        assert_eq!(entry_of("machine a login me", "a"), Some(("me".into(), String::new())));
        assert_eq!(entry_of("machine", "a"), None);
        assert_eq!(entry_of("", "a"), None);
    }
}
