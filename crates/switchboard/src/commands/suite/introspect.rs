//! `switchboard suite introspect`

use clap::Args;
use door_suites::{Caller, Suites};
use serde_json::{Value, json};

use super::call::{Answer, ask};
use crate::context::Context;
use crate::failure::Failure;

/// Show what a server can do: one line a tool, as a model sees it.
#[derive(Debug, Args)]
pub(crate) struct Introspect {
    /// The server; without it, all of them
    name: Option<String>,
    /// One tool with its full description and schema
    #[arg(long, value_name = "TOOL", requires = "name")]
    subtool: Option<String>,
    /// The tools that fit these words best
    #[arg(long, value_name = "WORDS")]
    query: Option<String>,
    /// With the schemas of the arguments
    #[arg(long)]
    full: bool,
    /// How many tools
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Where to go on, as the last answer said
    #[arg(long, requires = "name")]
    cursor: Option<String>,
}

pub(crate) async fn run(args: Introspect, context: Context) -> Result<(), Failure> {
    let suites = super::open(&context).await?;
    let shown = show(&args, &suites, &context).await;
    suites.close().await;
    shown
}

async fn show(args: &Introspect, suites: &Suites, context: &Context) -> Result<(), Failure> {
    let question = json!({
        "action": "introspect",
        "subtool": args.subtool,
        "query": args.query,
        "mode": args.full.then_some("full"),
        "limit": args.limit,
        "cursor": args.cursor,
    });
    if let Some(name) = &args.name {
        let answer = ask(suites, name, &question, &Caller::default()).await?.succeeded()?;
        print(context, name, &answer);
        return Ok(());
    }
    let names = suites.children();
    if names.is_empty() {
        context.printer.note("No MCP servers yet; `switchboard suite add NAME -- COMMAND` adds one.");
    }
    for name in &names {
        // One server that cannot be asked is no reason to be silent about the others.
        let answer = ask(suites, name, &question, &Caller::default()).await?;
        print(context, name, &answer);
    }
    Ok(())
}

fn print(context: &Context, name: &str, answer: &Answer) {
    let text = answer.text();
    if !context.printer.is_json() {
        context.printer.line(format_args!("# {name}\n{text}"));
        return;
    }
    // The full form is JSON itself; the others are lines for people and models.
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(mut tools)) => {
            tools.insert("suite".to_owned(), json!(name));
            context.printer.object(&tools);
        }
        _ => context.printer.object(&json!({ "suite": name, "text": text, "failed": answer.is_error() })),
    }
}
