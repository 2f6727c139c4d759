//! Script language of prompts, with one command and its argument per line.
//!
//! | line | effect on the model |
//! |---|---|
//! | `SAY text` | says the text, in two pieces |
//! | `HOLD text` | says half of the text, and the rest once the test releases it |
//! | `RUN command` | calls the shell |
//! | `BACKGROUND command` | calls the shell without waiting for the command |
//! | `WRITE name` | adds a file that contains `hello` |
//! | `CALL tool {json}` | calls the tool with this name, or with a name that ends in this name |
//! | `HANG` | begins an answer and never ends it |
//! | `BREAK [status]` | answers with this HTTP status; default: 500 |
//! | `AFTERWARDS line` | executes the line in a turn that the client starts itself after a background command has ended |
//!
//! The newest text of the user counts; text that the client adds counts only if it contains such a line or a
//! notification. Marks and spaces before the command are ignored, because the text may be inside a frame. Each response
//! contains one call. After the last call, the model says the text of `SAY`, or else `ran`, `wrote` or `called`.

use serde_json::{Value, json};

/// Marker with which Claude Code reports that a background command has ended.
const NOTIFICATION: &str = "<task-notification>";

/// One item of a conversation.
pub(super) enum Item {
    /// Text from the user.
    User(String),
    /// Text that the client adds to the user's text. It counts only if it contains a script or a notification.
    Client(String),
    /// Result of a tool call.
    Result,
}

/// Tool call in neutral form, before it gets the client's tool name and arguments.
pub(super) enum Call {
    Run { command: String, in_background: bool },
    Write { name: String },
    Tool { name: String, arguments: Value },
}

/// Scripted response of the model to a request.
pub(super) enum Answer {
    Say(String),
    Hold(String),
    Call(Call),
    Hang,
    Break(u16),
}

struct Line<'a> {
    word: &'a str,
    rest: &'a str,
}

/// Returns the newest text of the user that counts.
pub(super) fn newest_text(items: &[Item]) -> String {
    items[newest(items)..].iter().find_map(Item::text).unwrap_or_default().to_owned()
}

/// Decides the answer to a conversation.
pub(super) fn plan(items: &[Item]) -> Answer {
    let index = newest(items);
    let newest = items.get(index).and_then(Item::text).unwrap_or_default();
    let results = items[index..].iter().filter(|item| matches!(item, Item::Result)).count();
    let lines = lines(newest);
    if lines.is_empty() && newest.contains(NOTIFICATION) {
        let scripts = items[..index].iter().rev().filter_map(Item::text).map(self::lines);
        let script = scripts.into_iter().find(|lines| !lines.is_empty()).unwrap_or_default();
        let afterwards = script.iter().filter(|line| line.word == "AFTERWARDS");
        let own: Vec<Line> = afterwards.filter_map(|line| parse(line.rest)).collect();
        return if own.is_empty() { Answer::Say("it has ended".into()) } else { step(&own, results) };
    }
    step(&lines, results)
}

impl Item {
    fn text(&self) -> Option<&str> {
        match self {
            Self::User(text) | Self::Client(text) => Some(text),
            Self::Result => None,
        }
    }
}

/// Returns the index of the newest text that counts.
fn newest(items: &[Item]) -> usize {
    let counts = |item: &Item| match item {
        Item::User(_) => true,
        Item::Client(text) => !lines(text).is_empty() || text.contains(NOTIFICATION),
        Item::Result => false,
    };
    items.iter().rposition(counts).unwrap_or_default()
}

fn lines(text: &str) -> Vec<Line<'_>> {
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Line<'_>> {
    const WORDS: [&str; 9] =
        ["SAY", "HOLD", "RUN", "BACKGROUND", "WRITE", "CALL", "HANG", "BREAK", "AFTERWARDS"];
    let line = line.trim_start_matches(|c: char| !c.is_alphanumeric()).trim_end();
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    WORDS.contains(&word).then_some(Line { word, rest })
}

/// Returns the answer after this many results of calls.
fn step(lines: &[Line], results: usize) -> Answer {
    let mut calls = lines.iter().filter_map(|line| Some((line.word, call(line)?)));
    if let Some((_, call)) = calls.nth(results) {
        return Answer::Call(call);
    }
    for line in lines {
        match line.word {
            "SAY" => return Answer::Say(line.rest.into()),
            "HOLD" => return Answer::Hold(line.rest.into()),
            "HANG" => return Answer::Hang,
            "BREAK" => return Answer::Break(line.rest.parse().unwrap_or(500)),
            _ => {}
        }
    }
    let last = lines.iter().rev().find(|line| call(line).is_some());
    Answer::Say(match last.map(|line| line.word) {
        Some("WRITE") => "wrote".into(),
        Some("CALL") => "called".into(),
        Some(_) => "ran".into(),
        None => "what?".into(),
    })
}

fn call(line: &Line) -> Option<Call> {
    let rest = line.rest.to_owned();
    match line.word {
        "RUN" => Some(Call::Run { command: rest, in_background: false }),
        "BACKGROUND" => Some(Call::Run { command: rest, in_background: true }),
        "WRITE" => Some(Call::Write { name: rest }),
        "CALL" => {
            let (name, arguments) = line.rest.split_once(' ').unwrap_or((line.rest, "{}"));
            let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
            Some(Call::Tool { name: name.into(), arguments })
        }
        _ => None,
    }
}
