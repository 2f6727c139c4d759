use super::*;
use crate::test_channels::name;

fn shell(script: &str) -> WatcherConfig {
    let command = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
    WatcherConfig::new(name("codex"), name("general"), command)
}

async fn run(watcher: &WatcherConfig, prompt: &str) -> Result<String, String> {
    let output = run_program(watcher, &watcher.agent, prompt, None).await;
    output.map(|bytes| String::from_utf8(bytes).unwrap()).map_err(|failed| failed.to_string())
}

#[tokio::test]
async fn prompt_is_one_argument_without_shell() {
    let prompt = "hi $(touch /tmp/x) `id` -rf\n--dangerously-skip-permissions\n/quit !ls ; \"'";
    assert_eq!(run(&shell("cat"), prompt).await, Ok(prompt.to_owned()));
    let by_argument =
        WatcherConfig { prompt_input: PromptInput::Argument, ..shell("printf '%s|%s' \"$#\" \"$1\"") };
    assert_eq!(run(&by_argument, prompt).await, Ok(format!("1|{prompt}")));
    assert_eq!(run(&shell("printf %s \"$SWITCHBOARD_AGENT_NAME\""), "").await, Ok("codex".to_owned()));
}

#[tokio::test]
async fn program_failure_has_a_reason() {
    let hangs = WatcherConfig { timeout: Duration::from_millis(200), ..shell("sleep 600 & sleep 600") };
    assert_eq!(run(&hangs, "").await.unwrap_err(), "the program took longer than 0 s and was ended");
    let dies = run(&shell("echo first >&2; echo it broke >&2; exit 3"), "").await.unwrap_err();
    assert_eq!(dies, "the program ended with exit status: 3: it broke");
    let talks = run(&shell("exec cat /dev/zero"), "").await.unwrap_err();
    assert_eq!(talks, format!("the program printed more than {OUTPUT} bytes and was ended"));
    let missing = WatcherConfig { command: vec!["/nowhere/codex".into()], ..shell("") };
    assert!(run(&missing, "").await.unwrap_err().contains("/nowhere/codex"));
    let none = WatcherConfig { command: Vec::new(), ..shell("") };
    assert!(run(&none, "").await.unwrap_err().contains("no program"));
}

#[tokio::test]
async fn unread_stdin_and_long_stderr_are_fine() {
    assert_eq!(run(&shell("echo ok"), &"x".repeat(1 << 20)).await, Ok("ok\n".to_owned()));
    assert_eq!(run(&shell("head -c 1000000 /dev/zero >&2; echo ok"), "").await, Ok("ok\n".to_owned()));
    let long = WatcherConfig { prompt_input: PromptInput::Argument, ..shell("echo ok") };
    assert!(run(&long, &"x".repeat(ARGUMENT + 1)).await.unwrap_err().contains("stdin"));
}
