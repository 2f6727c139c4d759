use super::*;

fn answer(format: Format, output: &str) -> Result<String, String> {
    extract(format, output.as_bytes()).map_err(|failed| failed.to_string())
}

#[test]
fn each_format_has_its_answer() {
    let codex = "{\"type\":\"thread.started\",\"thread_id\":\"1\"}\n\
        {\"type\":\"item.completed\",\"item\":{\"id\":\"0\",\"type\":\"reasoning\",\"text\":\"hm\"}}\n\
        {\"type\":\"item.completed\",\"item\":{\"id\":\"1\",\"type\":\"agent_message\",\"text\":\"first\"}}\n\
        not JSON\n\
        {\"type\":\"item.completed\",\"item\":{\"id\":\"2\",\"type\":\"agent_message\",\"text\":\"42\"}}\n\
        {\"type\":\"turn.completed\",\"usage\":{}}\n";
    let old = "{\"id\":\"0\",\"msg\":{\"type\":\"agent_message\",\"message\":\"42\"}}\n";
    let claude = "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"42\\n\"}";
    let list = format!("[{{\"type\":\"system\"}},{claude}]");
    let gemini = "Loaded cached credentials.\n{\n \"response\": \"42\",\n \"stats\": {}\n}\n";
    for (format, output) in [
        (Format::Plain, "\n 42 \n"),
        (Format::Codex, codex),
        (Format::Codex, old),
        (Format::Claude, claude),
        (Format::Claude, &list),
        (Format::Gemini, gemini),
    ] {
        assert_eq!(answer(format, output), Ok("42".to_owned()), "{output}");
    }
}

#[test]
fn no_answer_is_a_failure_with_a_reason() {
    for (format, output) in [
        (Format::Plain, " \n"),
        (Format::Codex, "{\"type\":\"turn.completed\"}"),
        (Format::Claude, "{}"),
        (Format::Gemini, "{\"response\":null}"),
        (Format::Gemini, "nothing here"),
    ] {
        assert_eq!(answer(format, output), Err(Failed::NoAnswer.to_string()), "{output}");
    }
    let said = answer(Format::Claude, "{\"is_error\":true,\"result\":\"Credit balance is too low\"}");
    assert!(said.unwrap_err().contains("Credit balance is too low"));
    assert!(matches!(extract(Format::Plain, b"ok\xff"), Err(Failed::NotUtf8 { at: 2 })));
}
