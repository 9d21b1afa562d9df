//! Estimates the mean of a value from a sample, with the help of another value whose mean over everything is known.
//!
//! The known value (compressibility, or the size at a fast level) goes up and down with the wanted one. If the sample has more of
//! the former than the whole content has, the sample's mean of the latter is corrected along a straight line.

/// The fewest points for a line. With fewer, the ratio of both values is taken, which is a line through the origin.
const POINTS_MIN: usize = 8;
/// The least variance of the known value for a line; it is a ratio of sizes. With less, the line is as good as any other.
const VARIANCE_MIN: f64 = 1e-5;
/// The same for fewer points: only if they are far from each other.
const FEW_POINTS_MIN: usize = 3;
const FEW_VARIANCE_MIN: f64 = 2e-3;

/// One part of the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Bytes.
    pub(super) weight: f64,
    /// The known value for each byte.
    pub(super) x: f64,
    /// The wanted value for each byte.
    pub(super) y: f64,
}

/// The mean of `y` over everything, if `y` does not become 0 where `x` does: a few points give their mean.
pub(super) fn mean(points: &[Point], x_mean: f64) -> f64 {
    if points.len() >= POINTS_MIN {
        return total(points, x_mean);
    }
    let weight: f64 = points.iter().map(|point| point.weight).sum();
    let sum: f64 = points.iter().map(|point| point.weight * point.y).sum();
    if weight > 0.0 { sum / weight } else { 0.0 }
}

/// The mean of `y` over everything, where the mean of `x` is `x_mean`.
pub(super) fn total(points: &[Point], x_mean: f64) -> f64 {
    let weight: f64 = points.iter().map(|point| point.weight).sum();
    if weight <= 0.0 {
        return 0.0;
    }
    let mean = |value: fn(&Point) -> f64| {
        points.iter().map(|point| point.weight * value(point)).sum::<f64>() / weight
    };
    let (x, y) = (mean(|point| point.x), mean(|point| point.y));
    let sum = |value: &dyn Fn(&Point) -> f64| {
        points.iter().map(|point| point.weight * value(point)).sum::<f64>() / weight
    };
    let variance = sum(&|point| (point.x - x).powi(2));
    let (low, high) =
        points.iter().fold((f64::MAX, 0.0_f64), |(low, high), point| (low.min(point.y), high.max(point.y)));
    let is_line = points.len() >= POINTS_MIN && variance > VARIANCE_MIN
        || points.len() >= FEW_POINTS_MIN && variance > FEW_VARIANCE_MIN;
    let estimate = if is_line {
        let slope = sum(&|point| (point.x - x) * (point.y - y)) / variance;
        y + slope * (x_mean - x)
    } else if x > 0.0 && points.len() < POINTS_MIN {
        y * x_mean / x
    } else {
        y
    };
    // The whole content is not beyond all of its parts, unless the known value is.
    let in_proportion = if x > 0.0 { y * x_mean / x } else { y };
    estimate.clamp(low.min(in_proportion), high.max(in_proportion))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64) -> Point {
        Point { weight: 1.0, x, y }
    }

    #[test]
    fn a_sample_that_is_not_like_the_whole_is_corrected() {
        // y = 2 x - 1/2: a sample with too many high values.
        let points: Vec<Point> =
            (0..20).map(|n| f64::from(n) / 20.0 + 0.25).map(|x| point(x, 2.0 * x - 0.5)).collect();
        assert!((total(&points, 0.5) - 0.5).abs() < 1e-9);
        // Fewer, but far from each other: a line, too, which goes beyond the points only in proportion.
        let line = [point(0.1, 0.15), point(0.3, 0.25), point(0.5, 0.35)];
        assert!((total(&line, 0.2) - 0.2).abs() < 1e-9);
        assert!((total(&line, 0.9) - 0.55).abs() < 1e-9);
        // Few points: in proportion.
        assert!((total(&[point(0.5, 0.2), point(0.7, 0.4)], 0.5) - 0.25).abs() < 1e-9);
        // No variance: the mean.
        assert!((total(&[point(0.5, 0.25); 20], 0.4) - 0.25).abs() < 1e-9);
        assert_eq!(total(&[], 0.5), 0.0);
        // What does not become 0 with the known value is the mean of a few points, too.
        assert_eq!(mean(&[point(0.5, 2.0), point(0.7, 4.0)], 0.1), 3.0);
        assert_eq!(mean(&[], 0.1), 0.0);
    }
}
