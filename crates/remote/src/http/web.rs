//! `http://` and `https://`: the address is the object; credentials come with the address or from the caller.

use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::Url;

use super::object::{Access, Target};
use crate::error::{Error, FetchErrorKind, Result};

/// What is sent with requests to a web server.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WebOptions {
    /// User and password (RFC 7617). Those in the address take precedence.
    pub user: Option<(String, String)>,
    /// A token (RFC 6750).
    pub token: Option<String>,
    /// More headers.
    pub headers: Vec<(String, String)>,
}

/// An object at an address of the web.
pub struct WebAccess {
    target: Target,
    location: String,
}

impl WebAccess {
    /// The object at `address`.
    ///
    /// # Errors
    /// [`Error::Location`] for an address that cannot be parsed.
    pub fn new(address: &str, options: &WebOptions) -> Result<Self> {
        let wrong = |problem| Error::Location { location: without_password(address), problem };
        let mut url = Url::parse(address).map_err(|_| wrong("is no address"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("is no address of a web server"));
        }
        let decoded = |text: &str| {
            percent_decode(text).ok_or_else(|| wrong("has a user or a password that is not UTF-8"))
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
        if let Some((user, password)) = user {
            headers.push(("Authorization".into(), basic(&user, &password)));
        } else if let Some(token) = &options.token {
            headers.push(("Authorization".into(), format!("Bearer {token}")));
        }
        let location = without_query(&url);
        Ok(Self { target: Target { url: url.into(), headers }, location })
    }
}

impl Access for WebAccess {
    fn target(&self, _: Instant) -> Result<Target, FetchErrorKind> {
        Ok(self.target.clone())
    }

    fn refused(&self, _: u16, _: Option<&str>) -> bool {
        false
    }

    fn location(&self) -> &str {
        &self.location
    }
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

/// An address that cannot be parsed, without what may be a password.
fn without_password(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((before, after)) => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            format!("{scheme}://...@{after}")
        }
        None => address.split('?').next().unwrap_or_default().to_owned(),
    }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_sent_and_never_shown() {
        let access =
            WebAccess::new("https://me:p%40ss@host:8443/a/b.erofs?sig=secret#x", &WebOptions::default())
                .unwrap();
        assert_eq!(access.location(), "https://host:8443/a/b.erofs?...");
        let target = access.target(Instant::now()).unwrap();
        assert_eq!(target.url, "https://host:8443/a/b.erofs?sig=secret");
        assert_eq!(target.headers, [("Authorization".to_owned(), basic("me", "p@ss"))]);
        assert_eq!(basic("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        for wrong in ["http://", "ftp://me:secret@host/x", "https://me:secret@ho st/", "file:///x"] {
            let error = WebAccess::new(wrong, &WebOptions::default()).err().unwrap().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
