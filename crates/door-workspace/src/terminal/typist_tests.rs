use super::*;
use crate::terminal::screen::Emulator;

const PASTE: &str = "\x1b[?2004h";
const MENU: &str = "\x1b[2J\x1b[HDo you want to proceed?\r\n❯ 1. Yes\r\n  2. No";

/// A program's screen, polled every 20 ms.
struct Look {
    emulator: Emulator,
    now: Duration,
    typist: Typist,
}

impl Look {
    fn new(text: &str, screen: &str) -> Self {
        let mut next_step = Self {
            emulator: Emulator::new(10, 60),
            now: Duration::ZERO,
            typist: Typist::new(text.to_owned(), None, true),
        };
        next_step.draw(&format!("{PASTE}{screen}"));
        next_step
    }

    fn draw(&mut self, output: &str) {
        self.emulator.read(output.as_bytes());
    }

    /// Polls until there is a step.
    fn next(&mut self) -> Step {
        for _ in 0..1000 {
            let step = self.typist.next_step(&self.emulator.screen(false), self.now);
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
    let mut next_step = Look::new("make test", "$ ");
    assert_eq!(next_step.next(), Step::Paste);
    assert!(next_step.now >= STABLE_SCREEN);
    next_step.draw("make test");
    let pasted = next_step.now;
    assert_eq!(next_step.next(), Step::Enter);
    assert!(next_step.now >= pasted + ENTER_DELAY);
    next_step.draw("\r\n");
    assert_eq!(next_step.next(), Step::Typed);
    assert_eq!(next_step.typist.into_leftover(), None);
}

#[test]
fn question_gets_no_key() {
    let mut next_step = Look::new("make test", MENU);
    assert_eq!(next_step.next(), Step::NotTyped(Obstacle::Question));
}

#[test]
fn paste_waits_for_a_stable_screen() {
    let mut next_step = Look::new("make test", "$ ");
    for _ in 0..10 {
        assert_eq!(next_step.typist.next_step(&next_step.emulator.screen(false), next_step.now), Step::Wait);
        next_step.now += Duration::from_millis(200);
        next_step.draw("\r\n$ ");
    }
    next_step.draw(MENU);
    assert_eq!(next_step.next(), Step::NotTyped(Obstacle::Question));
}

#[test]
fn dialog_after_the_paste_gets_no_key() {
    for echoed in ["", "make test"] {
        let mut next_step = Look::new("make test", "$ ");
        assert_eq!(next_step.next(), Step::Paste);
        next_step.draw(echoed);
        assert_eq!(next_step.typist.next_step(&next_step.emulator.screen(false), next_step.now), Step::Wait);
        next_step.draw(MENU);
        assert_eq!(next_step.next(), Step::NotTyped(Obstacle::Question));
        assert!(next_step.typist.into_leftover().is_some());
    }
}

#[test]
fn other_echo_is_removed() {
    let mut next_step = Look::new("make test", "$ ");
    assert_eq!(next_step.next(), Step::Paste);
    next_step.draw("MAKE TEST");
    assert_eq!(next_step.next(), Step::Key(KILL_LINE));
    next_step.draw("\r\x1b[K$ MAKE");
    assert_eq!(next_step.next(), Step::Key(BACKSPACE));
    next_step.draw("\r\x1b[K$ ");
    assert_eq!(next_step.next(), Step::NotTyped(Obstacle::NotEchoed));
    assert_eq!(next_step.typist.into_leftover(), None);
}

#[test]
fn foreign_text_in_a_shared_field_stays() {
    let mut next_step = Look::new("make test", "$ ");
    next_step.typist.is_alone = false;
    assert_eq!(next_step.next(), Step::Paste);
    next_step.draw("vi make test");
    assert_eq!(next_step.next(), Step::NotTyped(Obstacle::NotRemoved));
}

#[test]
fn delayed_paste_is_removed_when_it_appears() {
    let mut next_step = Look::new("make test", "$ ");
    assert_eq!(next_step.next(), Step::Paste);
    assert_eq!(next_step.next(), Step::NotTyped(Obstacle::NotRemoved));
    next_step.draw("make test");
    let leftover = next_step.typist.into_leftover();
    assert_eq!(check_field(&next_step.emulator.screen(false), leftover.as_ref()), Ok(()));
    assert_eq!(check_field(&next_step.emulator.screen(false), None), Err(Obstacle::Occupied));
    next_step.typist = Typist::new("next".to_owned(), leftover, true);
    assert_eq!(next_step.next(), Step::Key(KILL_LINE));
    next_step.draw("\r\x1b[K$ ");
    assert_eq!(next_step.next(), Step::Paste);
    next_step.draw("next");
    assert_eq!(next_step.next(), Step::Enter);
}

#[test]
fn text_that_stays_after_enter_is_not_sent() {
    let mut next_step = Look::new("see @src", "> ");
    assert_eq!(next_step.next(), Step::Paste);
    next_step.draw("see @src");
    assert_eq!(next_step.next(), Step::Enter);
    next_step.draw("/main.rs");
    assert_eq!(next_step.next(), Step::NotTyped(Obstacle::NotSent));
}

#[test]
fn text_that_reappears_is_not_sent() {
    let frame =
        |text: &str| format!("\x1b[H\x1b[2J\x1b[?2004h────────────\r\n> {text}\r\n────────────\x1b[2;3H");
    let mut next_step = Look::new("make test", &frame(""));
    assert_eq!(next_step.next(), Step::Paste);
    next_step.draw("make test");
    assert_eq!(next_step.next(), Step::Enter);
    // A starting program redraws itself, keeps the text and moves the cursor before it.
    next_step.draw("\x1b[?2004l\x1b[2J");
    assert_eq!(next_step.typist.next_step(&next_step.emulator.screen(false), next_step.now), Step::Wait);
    next_step.draw(&frame("make test"));
    assert_eq!(next_step.next(), Step::NotTyped(Obstacle::NotSent));
}

#[test]
fn starting_command_line_gets_more_time() {
    let frame = "────────────\r\n> \r\n────────────\x1b[2;3H";
    for (screen, is_first, wait) in [
        (frame, true, STABLE_AT_START),
        (frame, false, STABLE_SCREEN),
        ("$ ", true, STABLE_SCREEN),
        ("$ ", false, STABLE_SCREEN),
    ] {
        let mut next_step = Look::new("make test", screen);
        next_step.typist = Typist::new("make test".to_owned(), None, true).starting(is_first);
        assert_eq!(next_step.next(), Step::Paste);
        assert!(
            next_step.now >= wait && next_step.now < wait + STABLE_SCREEN,
            "{screen:?} {is_first}: {:?}",
            next_step.now
        );
    }
}
