//! A calculation for many machines and one server, from the requests and bytes of one machine that the benchmark has measured.
//! `docs/FLEET.md` has the formula.

use super::Bench;
use crate::common::report::{Table, number};

/// Machines that start at the same time.
const NODES: f64 = 10_000.0;
/// Gigabits a second of the server's network interface.
const INTERFACES: [f64; 3] = [10.0, 25.0, 100.0];
/// Requests a second that a registry answers, and tokens that a token server gives. Both differ much; readers put in their own.
const REQUESTS_A_SECOND: f64 = 5_000.0;
const TOKENS_A_SECOND: f64 = 1_000.0;
/// The part of a link that a plan should use: queues grow without limit at 1.
const USABLE: f64 = 0.7;
/// Proxies in the last table.
const PROXIES: f64 = 10.0;
/// Requests of one machine that are sent again while a server refuses: what a program waits for, and all that may be in flight.
const WAITING: [(&str, f64); 2] = [("one reader waits", 1.0), ("all connections are in use", 16.0)];
/// The mean of the longest pauses between retries: 2.5 to 5 seconds.
const PAUSE: f64 = 3.75;

/// What one machine costs the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    pub(crate) requests: f64,
    pub(crate) bytes: f64,
}

/// The measured costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeCosts {
    /// A program that reads about thirty files.
    pub(crate) start: Option<Cost>,
    /// All files.
    pub(crate) complete: Option<Cost>,
}

/// Seconds that a server needs for all machines, for each thing that limits it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    interface: f64,
    requests: f64,
    tokens: f64,
}

impl Load {
    fn of(cost: Cost, nodes: f64, gigabits: f64) -> Self {
        Self {
            interface: nodes * cost.bytes / (gigabits * 1e9 / 8.0),
            requests: nodes * cost.requests / REQUESTS_A_SECOND,
            tokens: nodes / TOKENS_A_SECOND,
        }
    }

    /// The longest, and its name.
    fn bottleneck(self) -> (f64, &'static str) {
        let all = [(self.interface, "interface"), (self.requests, "requests"), (self.tokens, "tokens")];
        all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or(all[0])
    }
}

pub(super) fn calculation(bench: &mut Bench) {
    let costs = [("program start", bench.costs.start), ("complete image", bench.costs.complete)];
    let costs: Vec<(&str, Cost)> = costs.into_iter().filter_map(|(name, cost)| Some((name, cost?))).collect();
    let mut rows = Vec::new();
    for (name, cost) in &costs {
        for gigabits in INTERFACES {
            let load = Load::of(*cost, NODES, gigabits);
            let (seconds, bottleneck) = load.bottleneck();
            rows.push(vec![
                format!("{name}: {} requests, {} MB", cost.requests, number(cost.bytes / 1e6)),
                format!("{gigabits} Gbit/s"),
                number(load.interface),
                number(load.requests),
                number(load.tokens),
                format!("{bottleneck}, {} s", number(seconds)),
                number(seconds / USABLE),
            ]);
        }
    }
    bench.report.add(&Table {
        title: "10,000 machines, one server".into(),
        text: format!(
            "Seconds until a server has answered {} machines that start at the same time, for each thing that limits it: its network interface, \
             {} requests a second, {} tokens a second. The last column is the time over which the starts should be spread, \
             so that nothing is used by more than {} %.",
            number(NODES),
            number(REQUESTS_A_SECOND),
            number(TOKENS_A_SECOND),
            USABLE * 100.0
        ),
        head: vec!["one machine", "interface", "bytes", "requests", "tokens", "bottleneck", "spread over, s"],
        rows,
    });
    let mut rows = Vec::new();
    for (name, cost) in &costs {
        let proxy = Load::of(*cost, NODES / PROXIES, INTERFACES[0]);
        // A proxy fetches each part once, however many machines want it.
        let origin = PROXIES * cost.bytes / (INTERFACES[0] * 1e9 / 8.0);
        rows.push(vec![
            (*name).to_owned(),
            number(NODES * cost.bytes / 1e9),
            number(PROXIES * cost.bytes / 1e9),
            number(origin),
            number(proxy.interface.max(proxy.requests)),
        ]);
    }
    bench.report.add(&Table {
        title: "The same behind caching proxies".into(),
        text: format!(
            "{PROXIES} proxies with 10 Gbit/s each, for 1,000 machines each. If machines read different parts, the origin sends at most the image to each proxy."
        ),
        head: vec![
            "one machine",
            "GB from the origin without proxies",
            "with proxies",
            "seconds of the origin, 10 Gbit/s",
            "seconds of each proxy",
        ],
        rows,
    });
    let rows = WAITING.iter().map(|(name, waiting)| {
        vec![
            (*name).to_owned(),
            number(NODES * waiting / PAUSE),
            number(NODES * waiting / PAUSE / REQUESTS_A_SECOND),
        ]
    });
    let rows = rows.collect();
    bench.report.add(&Table {
        title: "While the server refuses".into(),
        text: format!(
            "Requests a second of {} machines that try again, after their pauses have grown to 2.5 to 5 seconds, and as a multiple of \
             {} a second. `Retry-After` of the server makes them fewer.",
            number(NODES),
            number(REQUESTS_A_SECOND)
        ),
        head: vec!["each machine", "requests a second", "of what the server answers"],
        rows,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_is_the_bottleneck() {
        let load = Load::of(Cost { requests: 30.0, bytes: 10e6 }, 10_000.0, 10.0);
        assert_eq!(load, Load { interface: 80.0, requests: 60.0, tokens: 10.0 });
        assert_eq!(load.bottleneck(), (80.0, "interface"));
        assert_eq!(
            Load::of(Cost { requests: 30.0, bytes: 10e6 }, 10_000.0, 100.0).bottleneck(),
            (60.0, "requests")
        );
    }
}
