// A hook of Gemini CLI: takes messages out of the run's inbox, and gives them to the model.
//
// A message is taken by a rename, which only one of several hooks at once can do. Those for the
// next turn are left to the hook that runs at a turn's end.

const fs = require("node:fs");
const path = require("node:path");

const AFTER_TURN = "AfterAgent";

function take(inbox, event) {
  const taken = [];
  for (const name of fs.readdirSync(path.join(inbox, "new")).sort()) {
    const here = path.join(inbox, "new", name);
    try {
      const message = JSON.parse(fs.readFileSync(here, "utf8"));
      if (message.mode === "turn" && event !== AFTER_TURN) continue;
      fs.renameSync(here, path.join(inbox, "cur", name));
      taken.push(message);
    } catch {
      // Another hook was faster, or it is no message.
    }
  }
  return taken;
}

function answer(event, taken) {
  if (!taken.length) return {};
  const said = taken.map((message) => message.text).join("\n\n");
  if (event !== AFTER_TURN) {
    const told = `A message from the user, just now:\n\n${said}`;
    return { hookSpecificOutput: { hookEventName: event, additionalContext: told } };
  }
  // What is said to the system is what the stream shows: so it is known which they are.
  const names = taken.map((message) => message.id).join(" ");
  return { decision: "block", reason: said, systemMessage: `paddock-took ${names}` };
}

function main() {
  const event = process.argv[2];
  const inbox = process.env.PADDOCK_INBOX;
  let taken = [];
  try {
    taken = inbox ? take(inbox, event) : [];
  } catch {
    // No inbox: nothing to take.
  }
  process.stdout.write(JSON.stringify(answer(event, taken)));
}

main();
