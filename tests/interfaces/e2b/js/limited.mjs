// Where a key has used up its requests: the first one is still answered.
import assert from 'node:assert/strict'
import { RateLimitError, Sandbox, SandboxNotFoundError } from 'e2b'

const options = { apiKey: process.env.OTHER_KEY, retries: 0 }
await assert.rejects(Sandbox.getInfo('nothing', options), SandboxNotFoundError)
for (const use of [() => Sandbox.getInfo('nothing', options), () => Sandbox.create(options)]) {
  await assert.rejects(use(), (error) => {
    assert.ok(error instanceof RateLimitError, `${error.name}: ${error.message}`)
    assert.match(error.message, /^Rate limit exceeded, please try again later - .*has made too many requests/)
    return true
  })
}
console.log('limited')
process.exit(0)
