// Sandboxes: made, found, put away, woken, copied, reached and ended.
import assert from 'node:assert/strict'
import { Sandbox, SandboxError, SandboxNotFoundError, TimeoutError } from 'e2b'
import { eventually, refused, visit, within } from './tools.mjs'

export const scenarios = {
  'files outside the home directory belong to the user': async () => {
    await within({ timeoutMs: 60_000 }, async (box) => {
      assert.equal(await box.files.makeDir('/workspace/src'), true)
      await box.files.write('/data/in/x.csv', '1')
      await box.files.write('/opt/app/large.bin', new Blob(['x'.repeat(3 << 20)]))
      for (const path of ['/workspace/src', '/data/in', '/data/in/x.csv', '/opt/app/large.bin']) {
        assert.equal((await box.files.getInfo(path)).owner, 'user', path)
      }
      await box.files.rename('/data/in/x.csv', '/srv/moved/x.csv')
      assert.equal(await box.files.read('/srv/moved/x.csv'), '1')
      await box.files.remove('/opt/app')
      assert.equal(await box.files.exists('/opt/app'), false)
    })
  },

  'it is paused within half a second of its deadline': async () => {
    const lateness = []
    for (let attempt = 0; attempt < 2; attempt++) {
      await within({ timeoutMs: 1000, lifecycle: { onTimeout: 'pause' } }, async (box) => {
        const { endAt } = await box.getInfo()
        while ((await box.getInfo()).state !== 'paused') await new Promise((next) => setTimeout(next, 20))
        lateness.push(Date.now() - endAt.getTime())
      })
    }
    assert.ok(Math.min(...lateness) <= 500, `${lateness} ms`)
  },

  'a snapshot has an underscore in its name': async () => {
    await within({ timeoutMs: 60_000 }, async (box) => {
      const name = `js_${Date.now()}`
      const { snapshotId } = await box.createSnapshot({ name })
      assert.equal(snapshotId, `${name}:default`)
      assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
    })
  },

  'an update of the network keeps that the internet was asked for': async () => {
    await within({ timeoutMs: 60_000, allowInternetAccess: true }, async (box) => {
      await box.updateNetwork({ allowOut: ['example.org'] })
      assert.equal((await box.getInfo()).allowInternetAccess, true)
      assert.match((await box.commands.run('getent ahostsv4 example.org')).stdout, /^198\.1/)
      assert.equal((await box.commands.run('getent ahostsv4 example.com || echo none')).stdout, 'none\n')
      await box.updateNetwork({ allowInternetAccess: false })
      assert.equal((await box.getInfo()).allowInternetAccess, false)
    })
  },

  'sandboxes are made found and killed': async () => {
    const metadata = { of: 'js', odd: 'a&b=c d' }
    await within({ metadata, envs: { COLOUR: 'green' }, timeoutMs: 60_000 }, async (box) => {
      assert.equal((await box.commands.run('echo $COLOUR; id -un')).stdout, 'green\nuser\n')
      assert.equal(await box.isRunning(), true)
      assert.deepEqual((await box.getInfo()).metadata, metadata)
      const page = await Sandbox.list({ query: { metadata } }).nextItems()
      assert.deepEqual(page.map((each) => each.sandboxId), [box.sandboxId])
      await box.setTimeout(120_000)
      assert.ok((await box.getInfo()).endAt - Date.now() > 100_000)
      assert.equal(await box.kill(), true)
      assert.equal(await box.kill(), false)
      assert.equal(await box.isRunning(), false)
    })
  },

  'lists are paged': async () => {
    await within({ metadata: { of: 'js pages' } }, (first) =>
      within({ metadata: { of: 'js pages' } }, async (second) => {
        const found = []
        const pages = Sandbox.list({ query: { metadata: { of: 'js pages' } }, limit: 1 })
        while (pages.hasNext) found.push((await pages.nextItems()).map((each) => each.sandboxId))
        assert.deepEqual(found, [[second.sandboxId], [first.sandboxId]])
        await first.pause()
        const asleep = Sandbox.list({ query: { metadata: { of: 'js pages' }, state: ['paused'] } })
        assert.deepEqual((await asleep.nextItems()).map((each) => each.sandboxId), [first.sandboxId])
        assert.equal(asleep.hasNext, false)
      }))
  },

  'a pause keeps memory': async () => {
    await within({ timeoutMs: 60_000 }, async (box) => {
      // What it counts is nowhere but in its memory.
      const counter = "python3 -c 'import sys; n = 0\nfor line in sys.stdin: n += int(line); print(n, flush=True)'"
      const behind = await box.commands.run(counter, { background: true, stdin: true, timeoutMs: 0 })
      await box.commands.sendStdin(behind.pid, '20\n')
      await eventually(() => behind.stdout === '20\n', 'what was counted')
      await behind.disconnect()
      assert.equal(await box.pause(), true)
      assert.equal((await box.getInfo()).state, 'paused')
      assert.equal(await box.isRunning(), false)
      const again = await Sandbox.connect(box.sandboxId)
      const counting = await again.commands.connect(behind.pid, { timeoutMs: 0 })
      await again.commands.sendStdin(behind.pid, '22\n')
      await again.commands.closeStdin(behind.pid)
      assert.ok((await counting.wait()).stdout.endsWith('42\n'))
    })
  },

  'time that is up pauses and traffic wakes': async () => {
    const lifecycle = { onTimeout: 'pause', autoResume: true }
    await within({ timeoutMs: 1000, lifecycle }, async (box) => {
      await box.files.write('a', 'kept')
      await eventually(async () => (await box.getInfo()).state === 'paused', 'the pause')
      assert.equal(await box.files.read('a'), 'kept')
    })
  },

  'a kill ends what is followed': async () => {
    await within({}, async (box) => {
      const behind = await box.commands.run('sleep 60', { background: true, timeoutMs: 0 })
      const ended = assert.rejects(behind.wait(), (error) => {
        assert.ok(error instanceof TimeoutError, `${error.name}: ${error.message}`)
        assert.match(error.message, /killed or reached its end of life/)
        return true
      })
      await box.kill()
      await ended
      await assert.rejects(box.commands.run('true'), SandboxNotFoundError)
      await assert.rejects(box.getInfo(), SandboxNotFoundError)
    })
  },

  'snapshots and forks are copies': async () => {
    await within({}, async (box) => {
      await box.files.write('a', 'then')
      const snapshot = await box.createSnapshot()
      await box.files.write('a', 'now')
      const copy = await Sandbox.create(snapshot.snapshotId)
      assert.equal(await copy.files.read('a'), 'then')
      await copy.kill()
      const listed = await box.listSnapshots().nextItems()
      assert.deepEqual(listed.map((each) => each.snapshotId), [snapshot.snapshotId])
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
      await assert.rejects(Sandbox.create(snapshot.snapshotId), SandboxError)
      const forks = await Sandbox.fork(box.sandboxId, { count: 2 })
      await forks[0].files.write('a', 'later')
      assert.equal(await forks[1].files.read('a'), 'now')
      assert.equal(await box.files.read('a'), 'now')
      for (const fork of forks) await fork.kill()
    })
  },

  'metrics and networks are told': async () => {
    await within({ allowInternetAccess: false }, async (box) => {
      const [metric] = await box.getMetrics()
      assert.ok(metric.memUsed > 0 && metric.diskTotal > metric.diskUsed)
      assert.equal((await box.commands.run('ls /sys/class/net')).stdout, 'lo\n')
      const egressProxy = { address: 'proxy.example:1080' }
      await refused(Sandbox.create({ network: { egressProxy } }), SandboxError, /501: .*cannot be enforced here/)
    })
  },

  'network rules hold and are changed while it runs': async () => {
    await within({ network: { allowOut: ['example.org'] } }, async (box) => {
      const known = async (name) => (await box.commands.run(`getent ahostsv4 ${name} || echo none`)).stdout
      assert.match(await known('example.org'), /^198\.1/)
      assert.equal(await known('example.com'), 'none\n')
      await box.updateNetwork({ allowOut: ['example.com'] })
      assert.equal(await known('example.org'), 'none\n')
      assert.match(await known('example.com'), /^198\.1/)
    })
  },

  'ports have host names': async () => {
    await within({}, async (box) => {
      await box.files.write('www/index.html', 'served')
      await box.commands.run('python3 -m http.server 8000 -d www', { background: true, timeoutMs: 0 })
      await eventually(async () => (await visit(box.getHost(8000))).body === 'served', 'the server')
      assert.equal((await visit(box.getHost(8001))).status, 502)
    })
  },
}
