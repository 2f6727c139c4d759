use super::*;
use crate::terminal::screen::Emulator;

const PASTE: &str = "\x1b[?2004h";
const MENU: &str = "\x1b[2J\x1b[HDo you want to proceed?\r\n❯ 1. Yes\r\n  2. No";

/// A program's screen, looked at every 20 ms.
struct Look {
    emulator: Emulator,
    now: Duration,
    typist: Typist,
}

impl Look {
    fn new(text: &str, screen: &str) -> Self {
        let mut look = Self {
            emulator: Emulator::new(10, 60),
            now: Duration::ZERO,
            typist: Typist::new(text.to_owned(), None, true),
        };
        look.draw(&format!("{PASTE}{screen}"));
        look
    }

    fn draw(&mut self, output: &str) {
        self.emulator.read(output.as_bytes());
    }

    /// Looks until there is something to do.
    fn next(&mut self) -> Step {
        for _ in 0..1000 {
            let step = self.typist.look(&self.emulator.screen(false), self.now);
            self.now += Duration::from_millis(20);
            if step != Step::Wait {
                return step;
            }
        }
        panic!("it waits for ever")
    }
}

#[test]
fn enter_follows_the_exact_echo() {
    let mut look = Look::new("make test", "$ ");
    assert_eq!(look.next(), Step::Paste);
    assert!(look.now >= STABLE);
    look.draw("make test");
    let pasted = look.now;
    assert_eq!(look.next(), Step::Enter);
    assert!(look.now >= pasted + BEFORE_ENTER);
    look.draw("\r\n");
    assert_eq!(look.next(), Step::Typed);
    assert_eq!(look.typist.stray(), None);
}

#[test]
fn question_gets_nothing() {
    let mut look = Look::new("make test", MENU);
    assert_eq!(look.next(), Step::NotTyped(Obstacle::Question));
}

#[test]
fn changing_screen_is_waited_for() {
    let mut look = Look::new("make test", "$ ");
    for _ in 0..10 {
        assert_eq!(look.typist.look(&look.emulator.screen(false), look.now), Step::Wait);
        look.now += Duration::from_millis(200);
        look.draw("\r\n$ ");
    }
    look.draw(MENU);
    assert_eq!(look.next(), Step::NotTyped(Obstacle::Question));
}

#[test]
fn dialog_after_the_paste_gets_no_key() {
    for echoed in ["", "make test"] {
        let mut look = Look::new("make test", "$ ");
        assert_eq!(look.next(), Step::Paste);
        look.draw(echoed);
        assert_eq!(look.typist.look(&look.emulator.screen(false), look.now), Step::Wait);
        look.draw(MENU);
        assert_eq!(look.next(), Step::NotTyped(Obstacle::Question));
        assert!(look.typist.stray().is_some());
    }
}

#[test]
fn other_echo_is_removed() {
    let mut look = Look::new("make test", "$ ");
    assert_eq!(look.next(), Step::Paste);
    look.draw("MAKE TEST");
    assert_eq!(look.next(), Step::Key(KILL_LINE));
    look.draw("\r\x1b[K$ MAKE");
    assert_eq!(look.next(), Step::Key(BACKSPACE));
    look.draw("\r\x1b[K$ ");
    assert_eq!(look.next(), Step::NotTyped(Obstacle::NotEchoed));
    assert_eq!(look.typist.stray(), None);
}

#[test]
fn foreign_text_in_a_shared_field_stays() {
    let mut look = Look::new("make test", "$ ");
    look.typist.is_alone = false;
    assert_eq!(look.next(), Step::Paste);
    look.draw("vi make test");
    assert_eq!(look.next(), Step::NotTyped(Obstacle::NotRemoved));
}

#[test]
fn swallowed_paste_is_removed_when_it_shows_up() {
    let mut look = Look::new("make test", "$ ");
    assert_eq!(look.next(), Step::Paste);
    assert_eq!(look.next(), Step::NotTyped(Obstacle::NotRemoved));
    look.draw("make test");
    let stray = look.typist.stray();
    assert_eq!(check_field(&look.emulator.screen(false), stray.as_ref()), Ok(()));
    assert_eq!(check_field(&look.emulator.screen(false), None), Err(Obstacle::Occupied));
    look.typist = Typist::new("next".to_owned(), stray, true);
    assert_eq!(look.next(), Step::Key(KILL_LINE));
    look.draw("\r\x1b[K$ ");
    assert_eq!(look.next(), Step::Paste);
    look.draw("next");
    assert_eq!(look.next(), Step::Enter);
}

#[test]
fn text_that_stays_after_enter_is_not_sent() {
    let mut look = Look::new("see @src", "> ");
    assert_eq!(look.next(), Step::Paste);
    look.draw("see @src");
    assert_eq!(look.next(), Step::Enter);
    look.draw("/main.rs");
    assert_eq!(look.next(), Step::NotTyped(Obstacle::NotSent));
}

#[test]
fn text_that_comes_back_is_not_sent() {
    let frame =
        |text: &str| format!("\x1b[H\x1b[2J\x1b[?2004h────────────\r\n> {text}\r\n────────────\x1b[2;3H");
    let mut look = Look::new("make test", &frame(""));
    assert_eq!(look.next(), Step::Paste);
    look.draw("make test");
    assert_eq!(look.next(), Step::Enter);
    // A program that starts redraws itself, keeps the text and sets the cursor before it.
    look.draw("\x1b[?2004l\x1b[2J");
    assert_eq!(look.typist.look(&look.emulator.screen(false), look.now), Step::Wait);
    look.draw(&frame("make test"));
    assert_eq!(look.next(), Step::NotTyped(Obstacle::NotSent));
}

#[test]
fn starting_command_line_gets_time() {
    let frame = "────────────\r\n> \r\n────────────\x1b[2;3H";
    for (screen, is_first, wait) in
        [(frame, true, STARTING), (frame, false, STABLE), ("$ ", true, STABLE), ("$ ", false, STABLE)]
    {
        let mut look = Look::new("make test", screen);
        look.typist = Typist::new("make test".to_owned(), None, true).first(is_first);
        assert_eq!(look.next(), Step::Paste);
        assert!(look.now >= wait && look.now < wait + STABLE, "{screen:?} {is_first}: {:?}", look.now);
    }
}
