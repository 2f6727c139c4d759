//! Medians and percentiles.

use std::time::Duration;

/// Returns the value below which a `share` (0 to 1) of the values lies; 0 if there are no values.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index within a list of samples"
    )]
    let index = (last as f64 * share).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

/// Returns the median of the values.
pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// Converts durations to milliseconds.
pub(crate) fn millis(times: &[Duration]) -> Vec<f64> {
    times.iter().map(|time| time.as_secs_f64() * 1e3).collect()
}

/// Returns the number of operations per second.
#[expect(clippy::cast_precision_loss, reason = "no run comes near 2^52 sends")]
pub(crate) fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_list() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        let shares = [0.0, 0.5, 0.75, 1.0];
        assert_eq!(
            shares.map(|share| percentile(&values, share).to_bits()),
            [1.0, 3.0, 4.0, 5.0].map(f64::to_bits)
        );
        assert_eq!(median(&[]).to_bits(), 0.0_f64.to_bits());
    }
}
