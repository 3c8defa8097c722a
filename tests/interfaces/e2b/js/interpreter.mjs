// The code interpreter as npm has it.
import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'

const box = await Sandbox.create({ timeoutMs: 120_000 })
try {
  await box.runCode('x = 41')
  const heard = []
  const done = await box.runCode('print("out"); x + 1', { onStdout: (said) => heard.push(said.line) })
  assert.equal(done.text, '42')
  assert.deepEqual(heard, ['out\n'])
  const failed = await box.runCode('1 / 0')
  assert.equal(failed.error.name, 'ZeroDivisionError')
  const context = await box.createCodeContext({ language: 'javascript', cwd: '/tmp' })
  assert.equal((await box.runCode('process.cwd()', { context })).text, "'/tmp'")
  assert.equal((await box.runCode('echo $((6 * 7))', { language: 'bash' })).logs.stdout[0], '42\n')
} finally {
  await box.kill()
}
process.exit(0)
