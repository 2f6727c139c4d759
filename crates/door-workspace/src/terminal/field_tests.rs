use std::fmt::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::terminal::screen::Emulator;

/// Loads the recorded screens of clients: the cursor's position in the first line, then 30 rows of 100 columns.
fn recorded(path: &Path) -> Screen {
    let text = std::fs::read_to_string(path).unwrap();
    let (cursor, rows) = text.split_once('\n').unwrap();
    let numbers: Vec<usize> = cursor.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
    Emulator::redraw(rows, (30, 100), (numbers[0], numbers[1]), InputMode::Paste)
}

fn screens() -> Vec<(String, String, Screen)> {
    let mut screens = Vec::new();
    for client in std::fs::read_dir(folder()).unwrap() {
        let client = client.unwrap();
        for file in std::fs::read_dir(client.path()).unwrap() {
            let path = file.unwrap().path();
            let state = path.file_stem().unwrap().to_str().unwrap().to_owned();
            screens.push((client.file_name().into_string().unwrap(), state, recorded(&path)));
        }
    }
    assert!(screens.len() > 50, "{}", screens.len());
    screens
}

fn find(client: &str, state: &str) -> Screen {
    recorded(&folder().join(client).join(format!("{state}.txt")))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/screens")
}

#[test]
fn field_is_found_only_where_clients_idle() {
    for (client, state, screen) in screens() {
        let found = Field::find(&screen).map(drop);
        match state.as_str() {
            "idle" | "idle_after_turn" | "after_reject" => assert_eq!(found, Ok(()), "{client}/{state}"),
            "permission" | "trust" | "sign_in" => {
                assert_eq!(found, Err(Obstacle::Question), "{client}/{state}");
            }
            "busy" => assert_eq!(found, Err(Obstacle::Busy), "{client}/{state}"),
            // A menu, a dialog or a draft: nothing is typed in any of them.
            _ => assert!(found.is_err(), "{client}/{state}"),
        }
    }
}

#[test]
fn echo_must_be_the_exact_text() {
    let tool = "@@tool Bash {\"command\":\"touch danger.txt\",\"description\":\"Touch\"}";
    let words = format!("{}end", "word ".repeat(60));
    let lines = |count: usize| (1..=count).map(|n| format!("l{n}")).collect::<Vec<_>>().join("\n");
    let table = [
        ("claude", "echo", tool.to_owned()),
        ("claude", "echo_two_lines", "@@say hello\n@@wait 6".to_owned()),
        ("claude", "echo_long", words),
        ("claude", "collapsed_long", "x".repeat(1200)),
        ("claude", "collapsed_lines", lines(6)),
        ("codex", "echo_two_lines", "@@say hi\n@@wait 6".to_owned()),
        ("codex", "echo_lines", lines(12)),
        ("codex", "collapsed_long", "x".repeat(1200)),
        ("gemini", "echo", "@@tool run_shell_command {\"command\":\"touch danger.txt\"}".to_owned()),
        ("gemini", "echo_two_lines", "@@say hi\n@@wait 6".to_owned()),
        ("gemini", "collapsed_long", "x".repeat(1200)),
        ("gemini", "collapsed_lines", lines(12)),
        ("copilot", "echo_two_lines", "@@say hi\n@@wait 6".to_owned()),
        ("copilot", "collapsed_lines", lines(12)),
    ];
    for (client, state, text) in table {
        let field = Field::find(&find(client, "idle")).unwrap();
        let screen = find(client, state);
        assert_eq!(field.echo(&screen, &text), Echo::Exact, "{client}/{state}");
        let other = field.echo(&screen, &format!("{text}\n\n\nmore"));
        assert!(matches!(other, Echo::Other(_)), "{client}/{state}: {other:?}");
        assert_eq!(field.echo(&find(client, "idle"), &text), Echo::Empty, "{client}");
        assert_eq!(field.echo(&find(client, "permission"), &text), Echo::Hidden, "{client}");
    }
}

fn drawn(output: &str, reads_lines: bool) -> Screen {
    let mut emulator = Emulator::new(12, 60);
    emulator.read(output.as_bytes());
    emulator.screen(reads_lines)
}

#[test]
fn plain_prompts_accept_text_questions_do_not() {
    let table = [
        ("me@host:~$ ", true),
        ("bash-5.2# ", true),
        ("ready\r\n> ", true),
        ("sqlite> ", true),
        ("\r\n~/src on main\r\n❯ ", true),
        ("Delete it? [y/N] \r\nme@host:~$ ", true),
        ("", false),
        ("ready\r\n", false),
        ("me@host:~$ half a draft", false),
        ("me@host:~$ draft\x1b[5D", false),
        ("Continue? (y/n) ", false),
        ("Continue? (y/n)\r\n> ", false),
        ("Do you want to proceed?\r\n\r\n> ", false),
        ("Press Enter to continue\r\n> ", false),
        ("Password: ", false),
        ("(reverse-i-search)`': ", false),
        ("me@host:~$ for x in *; do\r\n> ", false),
        ("me@host:~$ for x in *; do\r\n> echo\r\n> ", false),
        ("me% for x in *; do\r\nfor> ", false),
        ("❯ 1. Yes\r\n  2. No\r\n\r\n> ", false),
        ("┃ Allow once  Allow always  Reject   ⇆ select  enter confirm\r\n> ", false),
        ("> \r\n\r\n  Enter to confirm · Esc to cancel\x1b[1;3H", false),
        ("name: ", false),
    ];
    for (output, expected) in table {
        let screen = drawn(&format!("\x1b[?2004h{output}"), false);
        assert_eq!(Field::find(&screen).is_ok(), expected, "{output:?}");
        assert_eq!(Field::find(&drawn(output, false)), Err(Obstacle::NotReady), "{output:?}");
    }
}

#[test]
fn lines_need_an_empty_line() {
    for (output, expected) in
        [("", true), ("ready\r\n", true), ("> ", true), ("draft", false), ("Sure? [Y/n] ", false)]
    {
        assert_eq!(Field::find(&drawn(output, true)).is_ok(), expected, "{output:?}");
    }
    let field = Field::find(&drawn("ready\r\n", true)).unwrap();
    let long = "word ".repeat(30);
    assert_eq!(field.echo(&drawn(&format!("ready\r\n{}", long.trim()), true), &long), Echo::Exact);
    assert_eq!(field.echo(&drawn("ready\r\nwor", true), "word"), Echo::Other("wor".into()));
}

#[test]
fn bars_and_pipes_do_not_hide_the_text() {
    let bar = |rows: &str| drawn(&format!("\x1b[?2004h┃\r\n{rows}"), false);
    let field = Field::find(&bar("┃  \r\n┃\x1b[A\r\x1b[3C")).unwrap();
    let typed = bar("┃  one two\r\n┃  three\r\n┃\x1b[A\r\x1b[8C");
    assert_eq!(field.echo(&typed, "one two three"), Echo::Exact);
    let field = Field::find(&drawn("\x1b[?2004h$ ", false)).unwrap();
    let piped = format!("{} | sort", "x".repeat(57));
    assert_eq!(field.echo(&drawn(&format!("\x1b[?2004h$ {piped}"), false), &piped), Echo::Exact);
}

/// Builds three filled rows, as Gemini draws its field without true colour.
fn band(middle: &str, column: usize) -> Screen {
    let row = |text: &str| format!("\x1b[48;5;240m{text:<60}\x1b[49m\r\n");
    let rows = [" status\r\n", &row(""), &row(middle), &row(""), " ~/project"].concat();
    drawn(&format!("\x1b[?2004h{rows}\x1b[3;{}H", column + 1), false)
}

#[test]
fn filled_rows_are_a_frame() {
    let field = Field::find(&band(" >   Type your message or @path/to/file", 3)).unwrap();
    assert_eq!(field.echo(&band(" > hello", 8), "hello"), Echo::Exact);
    assert_eq!(field.echo(&band(" > hello you", 8), "hello"), Echo::Hidden);
    assert_eq!(Field::find(&band(" > a draft", 3)), Err(Obstacle::Occupied));
    assert_eq!(Field::find(&band(" > 1. Yes", 3)), Err(Obstacle::Occupied));
}

#[test]
fn tabs_move_text_away_from_cursor() {
    let field = Field::find(&band(" > ", 3)).unwrap();
    for (column, text) in [(11, "tab\there"), (7, "a\t\tb")] {
        let shown = format!(" > {}", text.replace('\t', "    "));
        assert_eq!(field.echo(&band(&shown, column), text), Echo::Exact, "{text:?}");
        assert_ne!(field.echo(&band(&format!("{shown} more"), column), text), Echo::Exact, "{text:?}");
        assert_ne!(field.echo(&band(&shown, column), &text.replace('\t', "")[1..]), Echo::Exact, "{text:?}");
    }
    assert_eq!(field.echo(&band(" >   Type your message", 3), "a\tb"), Echo::Empty);
}

proptest! {
    #[test]
    fn menu_is_never_a_field(
        above in prop::collection::vec("[ -~─│]{0,50}", 0..4),
        selector in prop::sample::select(vec!['❯', '›', '>', '●', '▶', '→', '*']),
        indent in 0_usize..4,
        boxed: bool,
        selected in 0_usize..3,
        close in prop::sample::select(vec![". ", ") "]),
        labels in prop::array::uniform3("[A-Za-z][A-Za-z ,]{0,20}"),
        below in prop::sample::select(vec!["\r\n❯ ", "\r\n> ", "\r\n$ ", "\r\n────────────\r\n❯ \r\n────────────\x1b[A\x1b[11D", ""]),
        reads_lines: bool,
        paste: bool,
    ) {
        let mut output = if paste { "\x1b[?2004h".to_owned() } else { String::new() };
        for row in above {
            output.extend([row.as_str(), "\r\n"]);
        }
        for (place, label) in labels.iter().enumerate() {
            let sign = if place == selected { selector } else { ' ' };
            let border = if boxed { "│ " } else { "" };
            let indent = " ".repeat(indent);
            write!(output, "{border}{indent}{sign} {}{close}{label}\r\n", place + 1).unwrap();
        }
        output += below;
        let screen = drawn(&output, reads_lines);
        prop_assert!(Field::find(&screen).is_err(), "{output:?}");
    }

    #[test]
    fn text_is_echoed_however_it_wraps(
        text in "([a-zA-Z0-9äö日本語]{1,30} ){1,8}[a-z]",
        prompt in "[a-z]{0,10}[$#] ",
    ) {
        let field = Field::find(&drawn(&format!("\x1b[?2004h{prompt}"), false)).unwrap();
        let screen = drawn(&format!("\x1b[?2004h{prompt}{text}"), false);
        prop_assert_eq!(field.echo(&screen, &text), Echo::Exact);
        prop_assert_ne!(field.echo(&screen, &format!("{text}x")), Echo::Exact);
    }
}
