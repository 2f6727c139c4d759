import os, sys, termios, tty

PROMPT, ECHO = "@PROMPT@", "@ECHO@"
tty.setraw(0)
log = open("keys", "w", encoding="utf-8", newline="")


def show(text):
    os.write(1, text.encode())


def note(text):
    log.write(text)
    log.flush()


show(PROMPT + "\033[?2004h")
# Until the first key, the screen shows the given prompt.
shown, field, pending = PROMPT == "> ", "", b""
is_dialog = not shown
while True:
    read = os.read(0, 65536)
    if not read:
        break
    pending += read
    while pending:
        if pending.startswith(b"\033[200~"):
            end = pending.find(b"\033[201~")
            if end < 0:
                break
            text, pending = pending[6:end].decode(), pending[end + 6:]
            note(f"<paste>{text}</paste>")
            if is_dialog:
                continue
            field = text.upper() if ECHO == "upper" else text
            show(field.replace("\n", "\r\n").replace("\t", " "))
            if ECHO == "dialog":
                ECHO, is_dialog = "echo", True
                show("\033[2J\033[HDo you want to proceed?\r\n\u276f 1. Yes\r\n  2. No\r\n")
            continue
        try:
            key = pending[:1].decode()
            size = 1
        except UnicodeDecodeError:
            key, size = pending.decode(errors="replace")[0], 2
        pending = pending[size:]
        names = {"\r": "<Enter>", "\x15": "<Kill>", "\x7f": "<Back>"}
        note(names.get(key, key))
        if is_dialog:
            is_dialog, field = False, ""
            show("\033[2J\033[Hanswered\r\n> ")
        elif key == "\r":
            field = ""
            show("\r\n> ")
        elif key == "\x15":
            field = ""
            show("\r\033[K> ")
