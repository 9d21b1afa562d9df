//! How a registry wants requests to be authorized: by tokens that another server gives (Bearer), or
//! by a user and a password (Basic).

#[cfg(test)]
mod tests;

use std::io::Read;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::Serializer;

use super::credentials::Credentials;
use crate::error::FetchErrorKind;
use crate::http::{Client, basic, bearer, error_of, is_this_machine};

/// The time that a token is valid if its server does not say it (the distribution specification).
const DEFAULT_VALID: Duration = Duration::from_secs(60);
/// A token that was refused sooner after it came was refused for a request that had the one before.
const NEW: Duration = Duration::from_secs(1);
/// The largest answer of a token server that is read, in bytes.
const ANSWER_MAX: u64 = 1 << 20;

/// The credentials that a registry asks for: the header `WWW-Authenticate`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

struct Token {
    header: String,
    came: Instant,
    renew: Option<Instant>,
}

#[derive(Default)]
struct Login {
    challenge: Option<Challenge>,
    token: Option<Token>,
}

/// The authorization of requests to one repository.
pub(super) struct Auth {
    client: Client,
    credentials: Option<Credentials>,
    is_anonymous: bool,
    /// The scope of the tokens: `repository:NAME:pull,push`.
    scope: String,
    /// Further scopes, from which blobs are mounted.
    more_scopes: Vec<String>,
    /// The registry's address.
    registry: Url,
    /// The caller gave a token.
    state: Mutex<Login>,
}

impl Auth {
    /// Tokens for `scope`. `token` is one that the caller already has.
    pub(super) fn new(
        client: Client,
        credentials: Option<Credentials>,
        token: Option<String>,
        scope: String,
        more_scopes: Vec<String>,
        registry: Url,
    ) -> Self {
        let is_anonymous = credentials.is_none() && token.is_none();
        let token =
            token.map(|token| Token { header: bearer(&token), came: Instant::now(), renew: None });
        let state = Mutex::new(Login { challenge: None, token });
        Self { client, credentials, is_anonymous, scope, more_scopes, registry, state }
    }

    /// Whether the caller gave neither a token nor credentials, and none were found.
    pub(super) const fn is_anonymous(&self) -> bool {
        self.is_anonymous
    }

    /// The value of the header `Authorization`, or none before the registry asked for it. Renews
    /// tokens that expire soon. Other threads wait for the same token.
    pub(super) fn header(&self, deadline: Instant) -> Result<Option<String>, FetchErrorKind> {
        let mut state = self.state.lock();
        if let Some(token) = &state.token
            && token.renew.is_none_or(|renew| Instant::now() < renew)
        {
            return Ok(Some(token.header.clone()));
        }
        let Some(challenge) = state.challenge.clone() else { return Ok(None) };
        let token = self.obtain(&challenge, deadline)?;
        let header = token.as_ref().map(|token| token.header.clone());
        state.token = token;
        Ok(header)
    }

    /// Notes that the registry refused a request. Returns whether the next one will have another
    /// header.
    pub(super) fn refused(&self, status: u16, challenge: Option<&str>) -> bool {
        let Some(challenge) = challenge.and_then(Challenge::parse).filter(|_| status == 401) else {
            return false;
        };
        let mut state = self.state.lock();
        if state.token.as_ref().is_some_and(|token| token.came.elapsed() < NEW)
            && state.challenge.is_some()
        {
            return true;
        }
        // A refused user and password are the same the next time.
        let had_basic = state.token.is_some() && state.challenge == Some(Challenge::Basic);
        if challenge == Challenge::Basic
            && (had_basic || !matches!(self.credentials, Some(Credentials::User(..))))
        {
            return false;
        }
        state.challenge = Some(challenge);
        state.token = None;
        true
    }

    /// Fails if a token server must not be asked. A registry without TLS may name one without TLS,
    /// but a password is sent there only if that is the registry's host or this machine.
    fn check_realm(&self, realm: &Url) -> Result<(), FetchErrorKind> {
        let is_known = || realm.host() == self.registry.host() || is_this_machine(realm);
        let is_allowed = match realm.scheme() {
            "https" => true,
            "http" => {
                self.registry.scheme() == "http" && (self.credentials.is_none() || is_known())
            }
            _ => false,
        };
        if is_allowed {
            return Ok(());
        }
        let host = realm.host_str().unwrap_or("without a name");
        Err(FetchErrorKind::Protocol(format!(
            "the registry's token server ({host}) has no secure address (https), so it is not asked: the registry must name another one"
        )))
    }

    fn obtain(
        &self,
        challenge: &Challenge,
        deadline: Instant,
    ) -> Result<Option<Token>, FetchErrorKind> {
        let came = Instant::now();
        let (realm, service, scope) = match (challenge, &self.credentials) {
            (Challenge::Basic, Some(Credentials::User(user, password))) => {
                return Ok(Some(Token { header: basic(user, password), came, renew: None }));
            }
            (Challenge::Basic, _) => return Ok(None),
            (Challenge::Bearer { realm, service, scope }, _) => (realm, service, scope),
        };
        let mut url = Url::parse(realm).map_err(|_| protocol("the token server has no address"))?;
        self.check_realm(&url)?;
        let scopes = || {
            let asked = scope.clone().unwrap_or_else(|| self.scope.clone());
            // A token for pulling only is not enough to push.
            let own = (asked != self.scope).then(|| self.scope.clone());
            [Some(asked), own].into_iter().flatten().chain(self.more_scopes.iter().cloned())
        };
        let mut answer = if let Some(Credentials::Identity(refresh)) = &self.credentials {
            let mut form = Serializer::new(String::new());
            form.append_pair("grant_type", "refresh_token").append_pair("client_id", "ferofs");
            form.append_pair("refresh_token", refresh);
            form.append_pair("scope", &scopes().collect::<Vec<_>>().join(" "));
            if let Some(service) = service {
                form.append_pair("service", service);
            }
            let kind = ("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned());
            self.client.send_with(
                "POST",
                url.as_str(),
                &[kind],
                Some(form.finish().as_bytes()),
                deadline,
            )?
        } else {
            {
                let mut query = url.query_pairs_mut();
                if let Some(service) = service {
                    query.append_pair("service", service);
                }
                for scope in scopes() {
                    query.append_pair("scope", &scope);
                }
            }
            let user = self.credentials.as_ref().and_then(|credentials| match credentials {
                Credentials::User(user, password) => {
                    Some(("Authorization".to_owned(), basic(user, password)))
                }
                Credentials::Identity(_) => None,
            });
            self.client.get(url.as_str(), user.as_slice(), deadline)?
        };
        match answer.status().as_u16() {
            200 => {}
            status => return Err(error_of(status, answer.headers())),
        }
        let mut body = Vec::new();
        let read = answer.body_mut().as_reader().take(ANSWER_MAX).read_to_end(&mut body);
        read.map_err(crate::http::kind_of_io)?;
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_| protocol("the token server sent no token"))?;
        let token = answer.token.or(answer.access_token).filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| protocol("the token server sent no token"))?;
        let valid = answer
            .expires_in
            .map_or(DEFAULT_VALID, |seconds| Duration::from_secs(seconds.min(1 << 30)));
        // A request that is on its way must not meet a token that has expired.
        Ok(Some(Token {
            header: bearer(&token),
            came,
            renew: came.checked_add(valid.mul_f64(0.8)),
        }))
    }
}

fn protocol(problem: &str) -> FetchErrorKind {
    FetchErrorKind::Protocol(problem.into())
}

impl Challenge {
    /// Parses `Bearer realm="...",service="...",scope="..."` or `Basic realm="..."`.
    fn parse(text: &str) -> Option<Self> {
        let (scheme, mut fields) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service, mut scope) = (None, None, None);
        while let Some((name, after)) = fields.trim_start_matches([',', ' ']).split_once('=') {
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => after.split_once(',').unwrap_or((after, "")),
            };
            match name.trim().to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value.to_owned()),
                "service" => service = Some(value.to_owned()),
                "scope" => scope = Some(value.to_owned()),
                _ => {}
            }
            fields = after;
        }
        Some(Self::Bearer { realm: realm?, service, scope })
    }
}
