//! The verb `switchboard suite savings`.

use clap::Args;
use door_suites::SavingsReport;

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;

/// Count the tokens that the suites save.
///
/// It counts tokens (o200k) from what is known of the servers, and starts none.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard suite savings"])]
pub(crate) struct Savings {}

pub(crate) async fn run(_: Savings, context: Context) -> Result<(), Failure> {
    let suites = super::open(&context).await?;
    let report = suites.savings();
    suites.close().await;
    if context.printer.is_json() {
        context.printer.object(&report);
        return Ok(());
    }
    for line in table(&report) {
        context.printer.line(line);
    }
    if !report.unknown.is_empty() {
        context.printer.note(format_args!(
            "Not counted, because their tools are not known yet: {}. `switchboard suite warm` asks them.",
            report.unknown.join(", ")
        ));
    }
    Ok(())
}

/// Renders the report of the savings as a table.
fn table(report: &SavingsReport) -> Vec<String> {
    let row = |name: &str, tools: &str, flat: &str, suite: &str, introspect: &str| {
        format!("{name:<24} {tools:>6} {flat:>8} {suite:>8} {introspect:>12}")
    };
    let mut lines = vec![row("tokens", "tools", "flat", "suite", "introspect")];
    for child in &report.children {
        let numbers =
            [child.tools, child.flat, child.suite, child.introspect].map(|number| number.to_string());
        let [tools, flat, suite, introspect] = &numbers;
        lines.push(row(&child.name, tools, flat, suite, introspect));
    }
    let tools: usize = report.children.iter().map(|child| child.tools).sum();
    let numbers = [tools, report.flat, report.suites, report.introspect_all].map(|number| number.to_string());
    let [tools, flat, suite, introspect] = &numbers;
    lines.push(row("together", tools, flat, suite, introspect));
    lines.push(String::new());
    if let Some(percent) = report.typical_saved_percent {
        let worth = if percent < 0.0 { format!("{} % more", -percent) } else { format!("{percent} % saved") };
        lines.push(format!(
            "One list, one introspection of the largest and one call: {} instead of {} tokens ({worth})",
            report.typical, report.flat
        ));
    }
    let counted = &report.measured.counted;
    if let Some(since) = counted.since {
        lines.push(format!(
            "Used since {}: {} lists, {} introspections, {} calls: {} instead of {} tokens ({} saved)",
            since.strftime("%Y-%m-%d"),
            counted.lists,
            counted.introspects,
            counted.calls,
            report.measured.used,
            report.measured.flat,
            report.measured.saved
        ));
    }
    lines
}
