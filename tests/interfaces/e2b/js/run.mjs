// One line of JSON for each scenario of a file: its name, and what was wrong with it.
const { scenarios, end } = await import(`./${process.argv[2]}`)

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
await end?.()
process.exit(0)
