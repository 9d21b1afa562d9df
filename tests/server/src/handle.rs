//! What tests and connections share.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::fault::Rule;
use crate::object::{Answer, Object};
use crate::request::Request;
use crate::server::Shape;

/// What requests below a path must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// The header `Authorization` with this value; otherwise status 401 with this challenge.
    Header {
        /// The expected value: `Bearer TOKEN`, `Basic BASE64`.
        value: String,
        /// The value of `WWW-Authenticate`.
        challenge: String,
    },
    /// A parameter of the query, as signed addresses have; otherwise status 403.
    Parameter {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// The parameter `expires` of the query, in milliseconds since 1970: status 403 without it, and
    /// when that time is over.
    Expires,
}

/// What a server has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests that were read.
    pub requests: u64,
    /// Bytes of bodies that were sent.
    pub bytes: u64,
    /// Requests that met a fault.
    pub faults: u64,
}

type Route = Arc<dyn Fn(&Request) -> Option<Answer> + Send + Sync>;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    folder: Option<PathBuf>,
    routes: Vec<Route>,
    rules: Vec<Rule>,
    auth: BTreeMap<String, Auth>,
    counts: Counts,
    log: Vec<Request>,
    is_down: bool,
    /// The last random number.
    random: u64,
}

/// Tells a server what to serve and what to do wrong, while it runs. Clones are the same.
#[derive(Clone, Default)]
pub struct Handle {
    state: Arc<Mutex<State>>,
    pub(crate) shape: Arc<Shape>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Requests that [`Handle::log`] keeps.
const LOG_MAX: usize = 100_000;

impl Handle {
    /// Serves bytes, or an [`Object`], at `path`.
    pub fn put(&self, path: &str, object: impl Into<Object>) {
        self.state.lock().objects.insert(path.to_owned(), object.into());
    }

    /// Removes what is served at `path`.
    pub fn remove(&self, path: &str) {
        self.state.lock().objects.remove(path);
    }

    /// Serves the files in `folder`.
    pub fn serve_folder(&self, folder: impl Into<PathBuf>) {
        self.state.lock().folder = Some(folder.into());
    }

    /// Answers requests with a function, if it returns an answer: a registry's token service, for
    /// example. Rules and credentials apply as usual.
    pub fn route(&self, route: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) {
        self.state.lock().routes.push(Arc::new(route));
    }

    /// Waits so long before each answer, and sends so many bytes a second on all connections
    /// together (0: any number).
    pub fn shape(&self, latency: Duration, bandwidth: u64) {
        self.shape.set_latency(latency);
        self.shape.set_bandwidth(bandwidth);
    }

    /// Adds a rule. The first rule that a request meets applies.
    pub fn add(&self, rule: Rule) {
        self.state.lock().rules.push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.state.lock().rules.clear();
    }

    /// Sets what requests below a path must have; `None`: nothing.
    pub fn set_auth(&self, prefix: &str, auth: Option<Auth>) {
        let mut state = self.state.lock();
        match auth {
            Some(auth) => drop(state.auth.insert(prefix.to_owned(), auth)),
            None => drop(state.auth.remove(prefix)),
        }
    }

    /// While a server is down, it closes each connection that it accepts, and each one that sends a
    /// request.
    pub fn set_down(&self, is_down: bool) {
        self.state.lock().is_down = is_down;
    }

    pub(crate) fn is_down(&self) -> bool {
        self.state.lock().is_down
    }

    /// What the server has done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// The requests so far, without those that are beyond the first 100,000.
    #[must_use]
    pub fn log(&self) -> Vec<Request> {
        self.state.lock().log.clone()
    }

    /// The ranges that the requests so far asked for at `path`, in their order. Ends beyond the
    /// object are as the client wrote them.
    #[must_use]
    pub fn ranges(&self, path: &str) -> Vec<Range<u64>> {
        let state = self.state.lock();
        let requests = state.log.iter().filter(|request| request.path == path);
        requests.filter_map(|request| request.range(u64::MAX)?.ok()).collect()
    }

    /// Forgets counts and requests.
    pub fn reset(&self) {
        let mut state = self.state.lock();
        state.counts = Counts::default();
        state.log.clear();
    }

    pub(crate) fn count_connection(&self) {
        self.state.lock().counts.connections += 1;
    }

    pub(crate) fn count_bytes(&self, len: usize) {
        self.state.lock().counts.bytes += len as u64;
    }

    /// Counts a request, and returns the rule that it meets.
    pub(crate) fn meet(&self, request: &Request) -> Option<Rule> {
        let mut state = self.state.lock();
        state.counts.requests += 1;
        if state.log.len() < LOG_MAX {
            state.log.push(request.clone());
        }
        let State { rules, random, .. } = &mut *state;
        let rule = rules
            .iter_mut()
            .find_map(|rule| rule.meets(request, next_random(random)).then(|| rule.clone()));
        state.counts.faults += u64::from(rule.is_some());
        rule
    }

    /// The answer of a server without faults.
    pub(crate) fn answer(&self, request: &Request) -> Answer {
        let (auth, routes, folder, object) = {
            let state = self.state.lock();
            let auth =
                state.auth.iter().rfind(|(prefix, _)| request.path.starts_with(prefix.as_str()));
            let object = state.objects.get(&request.path).cloned();
            (auth.map(|(_, auth)| auth.clone()), state.routes.clone(), state.folder.clone(), object)
        };
        if let Some(refusal) = auth.and_then(|auth| refusal(&auth, request)) {
            return refusal;
        }
        if let Some(answer) = routes.iter().find_map(|route| route(request)) {
            return answer;
        }
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Answer::new(405, "");
        }
        match object.or_else(|| file(&folder?, &request.path)) {
            Some(object) => Answer::of(&object, request),
            None => Answer::new(404, ""),
        }
    }
}

impl From<Vec<u8>> for Object {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

fn refusal(auth: &Auth, request: &Request) -> Option<Answer> {
    match auth {
        Auth::Header { value, challenge } => {
            let is_right = request.header("authorization") == Some(value);
            (!is_right).then(|| Answer::new(401, "").header("WWW-Authenticate", challenge))
        }
        Auth::Parameter { name, value } => {
            let is_right = request.parameter(name) == Some(value);
            (!is_right).then(|| Answer::new(403, "expired"))
        }
        Auth::Expires => {
            let until = request.parameter("expires").and_then(|time| time.parse().ok());
            (until.is_none_or(|until: u128| until <= now())).then(|| Answer::new(403, "expired"))
        }
    }
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis())
}

/// The next number of a sequence (SplitMix64) that is the same in each run: at least 0 and less
/// than 1.
fn next_random(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// The file below `folder` that a path names, without `..`.
fn file(folder: &Path, path: &str) -> Option<Object> {
    let path = Path::new(path.trim_start_matches('/'));
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| Object::file(&folder.join(path)).ok()).flatten()
}
