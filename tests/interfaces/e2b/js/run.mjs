// One line of JSON for each scenario: its name, and what was wrong with it.
import { scenarios } from './scenarios.mjs'

for (const [name, scenario] of Object.entries(scenarios)) {
  const limit = new Promise((_, reject) => setTimeout(() => reject(new Error('took too long')), 45_000).unref())
  let wrong = ''
  try {
    await Promise.race([scenario(), limit])
  } catch (error) {
    wrong = error.stack || String(error)
  }
  console.log(JSON.stringify({ name, wrong }))
}
process.exit(0)
