use super::*;

fn answer(format: OutputFormat, output: &str) -> Result<String, String> {
    extract(format, output.as_bytes()).map_err(|failed| failed.to_string())
}

#[test]
fn answer_is_extracted_from_each_format() {
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
        (OutputFormat::Plain, "\n 42 \n"),
        (OutputFormat::Codex, codex),
        (OutputFormat::Codex, old),
        (OutputFormat::Claude, claude),
        (OutputFormat::Claude, &list),
        (OutputFormat::Gemini, gemini),
    ] {
        assert_eq!(answer(format, output), Ok("42".to_owned()), "{output}");
    }
}

#[test]
fn missing_answer_is_an_error() {
    for (format, output) in [
        (OutputFormat::Plain, " \n"),
        (OutputFormat::Codex, "{\"type\":\"turn.completed\"}"),
        (OutputFormat::Claude, "{}"),
        (OutputFormat::Gemini, "{\"response\":null}"),
        (OutputFormat::Gemini, "nothing here"),
    ] {
        assert_eq!(answer(format, output), Err(ProgramError::NoAnswer.to_string()), "{output}");
    }
    let last_line =
        answer(OutputFormat::Claude, "{\"is_error\":true,\"result\":\"Credit balance is too low\"}");
    assert!(last_line.unwrap_err().contains("Credit balance is too low"));
    assert!(matches!(extract(OutputFormat::Plain, b"ok\xff"), Err(ProgramError::NotUtf8 { at: 2 })));
}
