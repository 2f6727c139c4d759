//! List of actions, with their names on the command line and among the MCP tools.
//!
//! A test of the binary compares the list with the existing verbs and tools, option by option. An option that one face
//! has and the other lacks needs a reason here.

/// Action that a person or an agent can perform.
#[derive(Debug, Clone, Copy)]
pub struct Action {
    /// Name of the action.
    pub name: &'static str,
    /// Verb of the command line, such as `team message`, or the reason why there is none.
    pub verb: Result<&'static str, &'static str>,
    /// Name of the MCP tool, or the reason why there is none.
    pub tool: Result<&'static str, &'static str>,
    /// Fields of an action that has both a verb and a tool.
    pub fields: &'static [Field],
}

/// One field of an action.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Name of the field in the action's request.
    pub name: &'static str,
    /// Option or argument of the verb, or the reason why there is none.
    ///
    /// An example is `--reply-to`; a positional argument such as `ID` has no dashes.
    pub option: Result<&'static str, &'static str>,
    /// Argument of the tool, or the reason why there is none.
    pub argument: Result<&'static str, &'static str>,
}

impl Action {
    /// Returns the action with this MCP tool.
    pub fn of_tool(tool: &str) -> Option<&'static Self> {
        ACTIONS.iter().find(|action| action.tool == Ok(tool))
    }

    /// Returns the action with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ACTIONS.iter().find(|action| action.name == name)
    }

    /// Returns the name of the tool's argument for a field, if there is one.
    pub fn argument(&self, field: &str) -> Option<&'static str> {
        self.fields.iter().find(|known| known.name == field)?.argument.ok()
    }

    /// Returns the name of the verb's option for a field, if there is one.
    pub fn option(&self, field: &str) -> Option<&'static str> {
        self.fields.iter().find(|known| known.name == field)?.option.ok()
    }
}

/// Returns a field that both the verb and the tool have.
const fn both(name: &'static str, option: &'static str, argument: &'static str) -> Field {
    Field { name, option: Ok(option), argument: Ok(argument) }
}

/// Returns a field that only the verb has, with the reason why the tool lacks it.
const fn option(option: &'static str, reason: &'static str) -> Field {
    Field { name: option, option: Ok(option), argument: Err(reason) }
}

/// Returns a field that only the tool has, with the reason why the verb lacks it.
const fn argument(argument: &'static str, reason: &'static str) -> Field {
    Field { name: argument, option: Err(reason), argument: Ok(argument) }
}

/// Reason why a verb lacks a field: every verb has the global option `--from` instead.
const GLOBAL_FROM: &str = "the global --from";
/// Reason why an action has no tool: only a person reads the whole journal.
///
/// A model's context has room only for the model's own mail.
const TERMINAL_ONLY: &str = "the output of a terminal";
/// Reason why a tool lacks a field: commands read files and pipes, but a model writes its text.
const SHELL_INPUT: &str = "a model writes its text";
/// Reason why an action has no tool: a model would decide for a person or for other agents.
const PERSON_DECIDES: &str = "a person decides";

/// List of all actions.
pub const ACTIONS: &[Action] = &[
    Action {
        name: "send",
        verb: Ok("send"),
        tool: Ok("send_message"),
        fields: &[
            both("to", "to", "recipient"),
            both("text", "text", "payload"),
            both("kind", "--kind", "action"),
            both("reply_to", "--reply-to", "replyTo"),
            both("metadata", "--metadata", "metadata"),
            both("claim", "--claim", "claim"),
            both("expires_in", "--ttl", "expiresInMinutes"),
            both("replace", "--replace", "replace"),
            both("allow_unregistered", "--allow-unregistered", "allowUnregistered"),
            both("key", "--idempotency-key", "idempotencyKey"),
            option("--file", SHELL_INPUT),
            option("--routed", "a call without a recipient is routed"),
            option("--wait", "wait_for_message waits"),
            option("--timeout", "wait_for_message waits"),
            argument("sender", GLOBAL_FROM),
        ],
    },
    Action {
        name: "send_team",
        verb: Ok("team message"),
        tool: Ok("send_team_message"),
        fields: &[
            both("team", "id", "team"),
            both("text", "text", "payload"),
            option("--file", SHELL_INPUT),
            both("kind", "--kind", "action"),
            both("role", "--role", "role_filter"),
            both("reply_to", "--reply-to", "replyTo"),
            both("metadata", "--metadata", "metadata"),
            both("key", "--idempotency-key", "idempotencyKey"),
            argument("sender", GLOBAL_FROM),
        ],
    },
    Action {
        name: "read",
        verb: Ok("inbox"),
        tool: Ok("check_inbox"),
        fields: &[
            both("owner", "agent", "agent"),
            both("limit", "--limit", "limit"),
            both("since", "--since", "since"),
            both("box", "--archived", "box"),
            both("full", "--full", "verbose"),
            option("--unseen", "wait_for_message returns unseen messages"),
            argument("filter", "--json and a filter of the shell"),
            argument("cursor", "--since continues a listing"),
            argument("id", "`thread` shows one message whole"),
            argument("offset", "a terminal scrolls"),
        ],
    },
    Action {
        name: "acknowledge",
        verb: Ok("ack"),
        tool: Ok("ack_message"),
        fields: &[
            both("ids", "ids", "ids"),
            both("status", "--status", "status"),
            both("note", "--note", "summary"),
            argument("agent", GLOBAL_FROM),
        ],
    },
    Action {
        name: "wait",
        verb: Ok("wait"),
        tool: Ok("wait_for_message"),
        fields: &[
            both("owner", "agent", "agent"),
            both("timeout", "--timeout", "timeout"),
            option("--since", "check_inbox has since"),
        ],
    },
    Action {
        name: "receipt",
        verb: Ok("receipt"),
        tool: Ok("get_receipt"),
        fields: &[both("id", "id", "id")],
    },
    Action {
        name: "search",
        verb: Ok("search"),
        tool: Ok("search_messages"),
        fields: &[
            both("query", "words", "query"),
            both("limit", "--limit", "limit"),
            both("before", "--before", "cursor"),
            option("--full", "check_inbox with id shows one message whole"),
        ],
    },
    Action {
        name: "claim",
        verb: Ok("claim"),
        tool: Ok("claim_task"),
        fields: &[
            both("task", "task", "task"),
            both("lease", "--for", "minutes"),
            both("note", "--note", "note"),
            both("everywhere", "--everywhere", "everywhere"),
            option("--check", "the hub checks the claim of each message; renew_claim reports one that ended"),
        ],
    },
    Action {
        name: "renew",
        verb: Ok("renew"),
        tool: Ok("renew_claim"),
        fields: &[
            both("task", "task", "task"),
            both("fence", "number", "fence"),
            both("lease", "--for", "minutes"),
        ],
    },
    Action {
        name: "release",
        verb: Ok("release"),
        tool: Ok("release_claim"),
        fields: &[both("task", "task", "task"), both("fence", "number", "fence")],
    },
    Action {
        name: "reserve",
        verb: Ok("reserve"),
        tool: Ok("reserve_files"),
        fields: &[
            both("paths", "patterns", "paths"),
            both("lease", "--for", "minutes"),
            both("note", "--note", "note"),
            both("shared", "--shared", "shared"),
            option("--release", "0 minutes release"),
            argument("folder", "a command has a working folder"),
        ],
    },
    Action { name: "list_agents", verb: Ok("agents list"), tool: Ok("get_team_roster"), fields: &[] },
    Action {
        name: "register",
        verb: Ok("agents register"),
        tool: Ok("register_chat_agent"),
        fields: &[
            both("name", "name", "name"),
            both("role", "--role", "role"),
            both("team", "--team", "team"),
            both("interface", "--interface", "interface"),
            both("capabilities", "--capability", "capabilities"),
            both("friendly_name", "--friendly-name", "friendlyName"),
        ],
    },
    Action {
        name: "set_status",
        verb: Ok("agents status"),
        tool: Ok("set_agent_status"),
        fields: &[
            both("name", "name", "name"),
            both("status", "status", "status"),
            both("message", "message", "message"),
        ],
    },
    Action {
        name: "assign_role",
        verb: Ok("agents role"),
        tool: Ok("assign_role"),
        fields: &[both("name", "name", "agent"), both("role", "role", "role")],
    },
    Action { name: "rename", verb: Ok("agents rename"), tool: Err(PERSON_DECIDES), fields: &[] },
    Action { name: "remove", verb: Ok("agents remove"), tool: Err(PERSON_DECIDES), fields: &[] },
    Action {
        name: "create_team",
        verb: Ok("team create"),
        tool: Ok("create_team"),
        fields: &[
            both("id", "id", "id"),
            both("title", "--title", "name"),
            both("composite", "--composite", "composite"),
        ],
    },
    Action {
        name: "assign_to_team",
        verb: Ok("team add"),
        tool: Ok("assign_to_team"),
        fields: &[both("team", "id", "team"), both("agent", "agents", "agent")],
    },
    Action {
        name: "remove_from_team",
        verb: Ok("team remove"),
        tool: Err("assign_to_team without a team"),
        fields: &[],
    },
    Action {
        name: "list_teams",
        verb: Ok("team list"),
        tool: Err("get_team_roster lists them"),
        fields: &[],
    },
    Action {
        name: "start_workflow",
        verb: Ok("workflow start"),
        tool: Ok("start_workflow"),
        fields: &[
            both("name", "name", "name"),
            both("context", "--context", "initialContext"),
            both("agent", "--agent", "targetAgent"),
            both("force", "--force", "force"),
            both("suspend", "--suspend", "suspend"),
        ],
    },
    Action {
        name: "workflow_state",
        verb: Ok("workflow state"),
        tool: Ok("get_workflow_state"),
        fields: &[],
    },
    Action {
        name: "complete_phase",
        verb: Ok("workflow complete"),
        tool: Ok("complete_workflow_phase"),
        fields: &[
            both("workflow", "workflow", "workflow"),
            both("phase", "phase", "phase"),
            both("artifacts", "--artifact", "artifacts"),
            both("notes", "--note", "notes"),
            both("skip_reason", "--skip-reason", "skipReason"),
            both("agent", "--agent", "targetAgent"),
        ],
    },
    Action {
        name: "stop_workflow",
        verb: Ok("workflow stop"),
        tool: Ok("stop_workflow"),
        fields: &[both("reason", "--reason", "reason"), both("agent", "--agent", "targetAgent")],
    },
    Action {
        name: "list_workflows",
        verb: Ok("workflow list"),
        tool: Err("the description of start_workflow lists them"),
        fields: &[],
    },
    Action {
        name: "run_in_terminal",
        verb: Err("`send --kind execute` types, and waits with --wait"),
        tool: Ok("run_in_terminal"),
        fields: &[],
    },
    Action {
        name: "register_terminal",
        verb: Err("`run` registers the terminal that it holds"),
        tool: Ok("register_terminal"),
        fields: &[],
    },
    Action {
        name: "copy_to_clipboard",
        verb: Err("a shell pipes into the clipboard program"),
        tool: Ok("handoff_clipboard"),
        fields: &[],
    },
    Action { name: "who", verb: Ok("who"), tool: Err("get_team_roster has the presence"), fields: &[] },
    Action { name: "route", verb: Ok("route"), tool: Err(TERMINAL_ONLY), fields: &[] },
    Action { name: "tail", verb: Ok("tail"), tool: Err(TERMINAL_ONLY), fields: &[] },
    Action {
        name: "thread",
        verb: Ok("thread"),
        tool: Err("check_inbox names the message that each one answers"),
        fields: &[],
    },
    Action { name: "watch", verb: Ok("watch"), tool: Err("a program that answers, not a call"), fields: &[] },
    Action { name: "post", verb: Ok("channel post"), tool: Err("send_message to #channel"), fields: &[] },
    Action { name: "list_channels", verb: Ok("channel list"), tool: Err(TERMINAL_ONLY), fields: &[] },
    Action { name: "read_channel", verb: Ok("channel read"), tool: Err(TERMINAL_ONLY), fields: &[] },
    Action { name: "tail_channel", verb: Ok("channel tail"), tool: Err(TERMINAL_ONLY), fields: &[] },
    Action { name: "archive_channel", verb: Ok("channel archive"), tool: Err(PERSON_DECIDES), fields: &[] },
    Action { name: "channel_root", verb: Ok("channel root"), tool: Err(PERSON_DECIDES), fields: &[] },
    Action { name: "guard", verb: Ok("guard"), tool: Err("Git calls it"), fields: &[] },
    Action { name: "resume", verb: Ok("resume"), tool: Err(PERSON_DECIDES), fields: &[] },
];
