//! One measured figure and its line of JSON.

use std::io::Write;

use serde::Serialize;

use crate::progress::say;

/// Measured figure with its baseline, if there is one.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    bench: &'static str,
    metric: String,
    value: f64,
    unit: &'static str,
    baseline: Option<&'static str>,
    baseline_value: Option<f64>,
    /// `value / baseline_value`.
    ratio: Option<f64>,
    /// Number of single measurements behind `value`.
    n: usize,
}

/// Target for a figure's ratio.
///
/// The result is reported on stderr; a missed target is not a failure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Figure {
    pub(crate) fn new(
        bench: &'static str,
        metric: impl Into<String>,
        value: f64,
        unit: &'static str,
        n: usize,
    ) -> Self {
        let metric = metric.into();
        Self { bench, metric, value, unit, baseline: None, baseline_value: None, ratio: None, n }
    }

    /// Adds the baseline and its value.
    pub(crate) fn with_baseline(mut self, baseline: &'static str, value: f64) -> Self {
        self.baseline = Some(baseline);
        self.baseline_value = Some(value);
        self.ratio = (value > 0.0).then(|| self.value / value);
        self
    }

    /// Prints the figure as a line of JSON.
    pub(crate) fn print(mut self) -> anyhow::Result<()> {
        self.value = rounded(self.value);
        self.baseline_value = self.baseline_value.map(rounded);
        self.ratio = self.ratio.map(rounded);
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&self)?)?;
        Ok(())
    }

    /// Prints the figure as a line of JSON, and on stderr whether its ratio meets the target.
    pub(crate) fn print_against(self, target: Target) -> anyhow::Result<()> {
        let ratio = self.ratio.unwrap_or_default();
        let (met, sign, bound) = match target {
            Target::AtLeast(bound) => (ratio >= bound, '≥', bound),
            Target::AtMost(bound) => (ratio <= bound, '≤', bound),
        };
        let verdict = if met { "met" } else { "MISSED" };
        let baseline = self.baseline.unwrap_or_default();
        say!("target {verdict}: {} is {ratio:.2} × {baseline}, should be {sign} {bound}", self.metric);
        self.print()
    }
}

/// Rounds to four significant digits, because a run is not more precise.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_one_flat_object() {
        let figure = Figure::new("mailbox", "accepted_1", 1500.0, "1/s", 7).with_baseline("sqlite", 2000.0);
        let expected = r#"{"bench":"mailbox","metric":"accepted_1","value":1500.0,"unit":"1/s","baseline":"sqlite","baseline_value":2000.0,"ratio":0.75,"n":7}"#;
        assert_eq!(serde_json::to_string(&figure).unwrap(), expected);
        assert_eq!(rounded(1234.56).to_bits(), 1235.0_f64.to_bits());
    }
}
