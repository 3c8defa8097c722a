// What goes wrong, as the SDK's own errors.
import assert from 'node:assert/strict'
import { AuthenticationError, FileNotFoundError, InvalidArgumentError, NotEnoughSpaceError, Sandbox, SandboxError, SandboxNotFoundError, TimeoutError } from 'e2b'
import { detour, refused, within } from './tools.mjs'

export const scenarios = {
  'errors have their own types': async () => {
    const apiKey = 'e2b_' + '0'.repeat(40)
    await refused(Sandbox.create({ apiKey }), AuthenticationError, /token/)
    await assert.rejects(Sandbox.connect('sbx01m7hj8b21wwxymkxktjpv29sp'), SandboxNotFoundError)
    await assert.rejects(Sandbox.create('no-such-template'), SandboxError)
    await within({}, async (box) => {
      await assert.rejects(box.files.read('gone'), FileNotFoundError)
      await assert.rejects(box.files.list('/etc/hostname'), InvalidArgumentError)
      await assert.rejects(box.commands.run('true', { cwd: '/nowhere' }), InvalidArgumentError)
      await assert.rejects(box.commands.run('true', { user: 'nobody-here' }), AuthenticationError)
      await assert.rejects(box.commands.run('sleep 30', { timeoutMs: 500 }), TimeoutError)
      await assert.rejects(box.files.write('/dev/shm/much', 'x'.repeat(300 << 20)), NotEnoughSpaceError)
    })
  },

  'one that is paused or foreign is not found': async () => {
    await within({}, async (box) => {
      const apiKey = process.env.OTHER_KEY
      await assert.rejects(Sandbox.connect(box.sandboxId, { apiKey }), SandboxNotFoundError)
      await assert.rejects(Sandbox.getInfo(box.sandboxId, { apiKey }), SandboxNotFoundError)
      assert.equal(await Sandbox.kill(box.sandboxId, { apiKey }), false)
      assert.equal(await box.pause(), true)
      assert.equal(await box.pause(), false)
      for (const use of [() => box.commands.run('true'), () => box.files.read('a')]) {
        await assert.rejects(use(), (error) => {
          assert.ok(error instanceof TimeoutError || error instanceof SandboxNotFoundError, error.stack)
          assert.match(error.message, /not found|end of life|not running/)
          return true
        })
      }
      await assert.rejects(box.setTimeout(1000), SandboxNotFoundError)
    })
  },

  'time that is used up ends what is followed': async () => {
    await within({ timeoutMs: 1000 }, async (box) => {
      const behind = await box.commands.run('sleep 60', { background: true, timeoutMs: 0 })
      await assert.rejects(behind.wait(), (error) => {
        assert.ok(error instanceof TimeoutError, `${error.name}: ${error.message}`)
        assert.match(error.message, /killed or reached its end of life/)
        return true
      })
      await assert.rejects(box.getInfo(), SandboxNotFoundError)
    })
  },

  'a watch ends with its sandbox and says why': async () => {
    await within({}, async (box) => {
      await box.files.makeDir('d')
      const ended = new Promise((onExit) => box.files.watchDir('d', () => {}, { onExit, timeoutMs: 0 }).then(() => box.kill()))
      const error = await ended
      assert.ok(error instanceof TimeoutError, `${error?.name}: ${error?.message}`)
      assert.match(error.message, /killed or reached its end of life/)
    })
  },

  'a wrong token of a sandbox lets nobody in': async () => {
    await within({}, async (box) => {
      const sandboxUrl = process.env.E2B_SANDBOX_URL
      const about = { sandboxId: box.sandboxId, envdVersion: '0.6.13', sandboxUrl }
      const lost = new Sandbox({ ...about, envdAccessToken: 'wrong' })
      await refused(lost.commands.run('true'), AuthenticationError, /access token present .* does not match/)
      await refused(lost.files.read('/etc/hostname'), AuthenticationError, /does not match/)
      await refused(lost.files.write('a', 'b'), AuthenticationError, /does not match/)
      await refused(lost.files.list('/'), AuthenticationError, /does not match/)
      const without = new Sandbox(about)
      await refused(without.commands.run('true'), AuthenticationError, /valid access token/)
      assert.equal(await box.files.exists('a'), false)
    })
  },

  'a connection that is cut is an error and no end': async () => {
    await within({}, async (box) => {
      const way = await detour()
      const there = await Sandbox.connect(box.sandboxId, { sandboxUrl: way.url })
      const behind = await there.commands.run('sleep 60', { background: true, timeoutMs: 0 })
      const ended = assert.rejects(behind.wait(), (error) => {
        assert.ok(error instanceof SandboxError, `${error.name}: ${error.message}`)
        assert.doesNotMatch(error.message, /killed or reached its end of life/)
        return true
      })
      way.cut()
      await ended
      assert.equal(await box.isRunning(), true)
      assert.ok((await box.commands.list()).some((each) => each.pid === behind.pid))
    })
  },

  'a server that is gone is not a sandbox that is': async () => {
    await within({}, async (box) => {
      const way = await detour()
      const there = await Sandbox.connect(box.sandboxId, { sandboxUrl: way.url })
      assert.equal((await there.commands.run('echo there')).stdout, 'there\n')
      way.cut()
      for (const use of [() => there.commands.run('true'), () => there.files.list('/')]) {
        await refused(use(), SandboxError, /fetch failed/)
      }
      // What is no call of the sandbox's agent, the SDK hands on as fetch() says it.
      await refused(there.files.read('a'), TypeError, /fetch failed/)
      await refused(Sandbox.getInfo(box.sandboxId, { apiUrl: way.url, retries: 0 }), TypeError, /fetch failed/)
      assert.equal(await box.isRunning(), true)
    })
  },
}
