//! How large requests should be: measured from the requests before.

use std::time::Duration;

use parking_lot::Mutex;

/// The smallest and the largest request for data that is read in sequence.
const SMALLEST: u64 = 256 << 10;
const LARGEST: u64 = 8 << 20;
/// The request before anything is known.
const FIRST: u64 = 1 << 20;
/// Bytes up to which a request tells the latency rather than the bandwidth.
const SMALL: u64 = 128 << 10;
/// The smallest and the largest request in the background, and the seconds that it may take: a
/// reader that needs a part of it waits so long.
const BACKGROUND: (u64, u64, f64) = (512 << 10, 4 << 20, 1.0);
/// Weight of a new measurement.
const WEIGHT: f64 = 0.2;

/// Moving averages of latency and bandwidth.
#[derive(Debug, Default)]
pub(crate) struct Speed {
    averages: Mutex<Averages>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Averages {
    /// Seconds of a small request.
    latency: Option<f64>,
    /// Bytes a second of one connection, after the latency.
    bandwidth: Option<f64>,
}

fn average(old: Option<f64>, new: f64) -> Option<f64> {
    Some(old.map_or(new, |old| old + (new - old) * WEIGHT))
}

impl Speed {
    /// Records a request.
    #[expect(clippy::as_conversions, reason = "a rounded number is enough")]
    pub(crate) fn record(&self, bytes: u64, time: Duration) {
        let mut averages = self.averages.lock();
        let seconds = time.as_secs_f64();
        if bytes <= SMALL {
            averages.latency = average(averages.latency, seconds);
        } else {
            let transfer =
                (seconds - averages.latency.unwrap_or(0.0)).max(seconds / 10.0).max(1e-6);
            averages.bandwidth = average(averages.bandwidth, bytes as f64 / transfer);
        }
    }

    /// Bytes of a request for data that is read in sequence: what arrives in four times the
    /// latency, so that waiting is at most a fifth of the time of a connection.
    #[expect(clippy::as_conversions, reason = "conversions of floats saturate")]
    pub(crate) fn request(&self) -> u64 {
        let averages = *self.averages.lock();
        let (Some(latency), Some(bandwidth)) = (averages.latency, averages.bandwidth) else {
            return FIRST;
        };
        ((latency * bandwidth * 4.0) as u64).clamp(SMALLEST, LARGEST).next_multiple_of(SMALLEST)
    }

    /// Bytes of a request in the background: few large requests, unless the line is slow.
    #[expect(clippy::as_conversions, reason = "conversions of floats saturate")]
    pub(crate) fn background(&self) -> u64 {
        let (smallest, largest, seconds) = BACKGROUND;
        let averages = *self.averages.lock();
        let arrives = averages.bandwidth.map_or(largest, |bandwidth| (bandwidth * seconds) as u64);
        arrives.clamp(smallest, largest)
    }

    /// Bytes of a request for data that is read at random: what arrives in a quarter of the latency
    /// costs little.
    #[expect(clippy::as_conversions, reason = "conversions of floats saturate")]
    pub(crate) fn around(&self) -> u64 {
        let averages = *self.averages.lock();
        let (Some(latency), Some(bandwidth)) = (averages.latency, averages.bandwidth) else {
            return SMALL;
        };
        ((latency * bandwidth / 4.0) as u64).clamp(SMALL / 2, 2 * SMALL).next_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_grow_with_latency_and_bandwidth() {
        let speed = |latency: f64, bandwidth: f64| {
            let speed = Speed::default();
            for _ in 0..50 {
                speed.record(4096, Duration::from_secs_f64(latency));
                speed.record(
                    1 << 20,
                    Duration::from_secs_f64(latency + (1 << 20) as f64 / bandwidth),
                );
            }
            (speed.request(), speed.around())
        };
        assert_eq!(Speed::default().request(), FIRST);
        assert_eq!(speed(0.000_1, 1e9), (512 << 10, 64 << 10));
        assert_eq!(speed(0.02, 1e9).0, LARGEST);
        assert_eq!(speed(0.005, 25e6), (512 << 10, 64 << 10));
        let slow = Speed::default();
        assert_eq!(slow.background(), 4 << 20);
        slow.record(1 << 20, Duration::from_secs(1));
        assert_eq!(slow.background(), 1 << 20);
    }
}
