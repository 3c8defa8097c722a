// What E2B's JavaScript SDK, as it is on npm, is tried with. Each scenario ends what it made.
import assert from 'node:assert/strict'
import http from 'node:http'
import net from 'node:net'
import {
  AuthenticationError, CommandExitError, FileNotFoundError, InvalidArgumentError, NotEnoughSpaceError,
  Sandbox, SandboxError, SandboxNotFoundError, Template, TimeoutError, Volume, VolumeError, VolumeNotFoundError,
  VolumePathNotFoundError,
} from 'e2b'

const apiUrl = process.env.E2B_API_URL

async function within(options, work) {
  const box = await Sandbox.create(options)
  try {
    return await work(box)
  } finally {
    await Sandbox.kill(box.sandboxId)
  }
}

async function eventually(check, what, seconds = 15) {
  const until = Date.now() + seconds * 1000
  while (!(await check())) {
    assert.ok(Date.now() < until, `not in time: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

// By its name, without asking anyone where that is.
function visit(host, headers = {}) {
  const { hostname, port } = new URL(apiUrl)
  return new Promise((resolve, reject) => {
    const request = http.get({ hostname, port, path: '/', headers: { host, ...headers } }, (answer) => {
      let body = ''
      answer.on('data', (piece) => (body += piece))
      answer.on('end', () => resolve({ status: answer.statusCode, body }))
    })
    request.on('error', reject)
  })
}

async function refused(attempt, kind, words) {
  await assert.rejects(attempt, (error) => {
    assert.ok(error instanceof kind, `${error.name} is no ${kind.name}: ${error.message}`)
    assert.match(error.message, words)
    return true
  })
}

// A way to the server that can be cut, after which nobody answers there.
async function detour() {
  const { hostname, port } = new URL(apiUrl)
  const sockets = new Set()
  const way = net.createServer((near) => {
    const far = net.connect(Number(port), hostname)
    near.pipe(far)
    far.pipe(near)
    for (const each of [near, far]) {
      sockets.add(each)
      each.on('error', () => {})
    }
  })
  await new Promise((resolve) => way.listen(0, '127.0.0.1', resolve))
  const cut = () => {
    way.close()
    for (const each of sockets) each.destroy()
  }
  return { url: `http://127.0.0.1:${way.address().port}`, cut }
}

export const scenarios = {
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
      }))
  },

  'commands run in front and behind': async () => {
    await within({}, async (box) => {
      await assert.rejects(box.commands.run('echo why >&2; exit 3'), (error) => {
        assert.ok(error instanceof CommandExitError)
        assert.deepEqual([error.exitCode, error.stderr], [3, 'why\n'])
        return true
      })
      const behind = await box.commands.run('cat', { background: true, stdin: true })
      await box.commands.sendStdin(behind.pid, 'said')
      const pids = (await box.commands.list()).map((each) => each.pid)
      assert.ok(pids.includes(behind.pid))
      let heard = ''
      const again = await box.commands.connect(behind.pid, { onStdout: (text) => { heard += text } })
      await box.commands.sendStdin(behind.pid, ' more')
      await box.commands.closeStdin(behind.pid)
      assert.equal((await again.wait()).exitCode, 0)
      assert.ok(heard.endsWith(' more'))
      const asleep = await box.commands.run('sleep 60', { background: true })
      assert.equal(await asleep.kill(), true)
      await assert.rejects(asleep.wait(), CommandExitError)
      await assert.rejects(box.commands.run('sleep 30', { timeoutMs: 1000 }), TimeoutError)
      const lines = (await box.commands.run('seq 1 100000')).stdout.split('\n')
      assert.equal(lines.length, 100001)
    })
  },

  'terminals are terminals': async () => {
    await within({}, async (box) => {
      let seen = ''
      const decoder = new TextDecoder()
      const onData = (data) => { seen += decoder.decode(data, { stream: true }) }
      const terminal = await box.pty.create({ cols: 101, rows: 33, onData })
      const type = (text) => box.pty.sendInput(terminal.pid, new TextEncoder().encode(text))
      await type('stty size\n')
      await eventually(() => seen.includes('33 101'), 'the size')
      await box.pty.resize(terminal.pid, { cols: 120, rows: 40 })
      await type('stty size; exit\n')
      await terminal.wait()
      assert.ok(seen.includes('40 120'))
    })
  },

  'files are written read listed and watched': async () => {
    await within({}, async (box) => {
      await box.files.write('a.txt', 'grüße')
      assert.equal(await box.files.read('a.txt'), 'grüße')
      const bytes = new Uint8Array(3 << 20).map((_, index) => index % 251)
      await box.files.write('b.bin', bytes.buffer)
      assert.deepEqual(Buffer.from(await box.files.read('b.bin', { format: 'bytes' })), Buffer.from(bytes))
      await box.files.write([{ path: 'd/1', data: '1' }, { path: 'd/2', data: '2' }])
      assert.deepEqual((await box.files.list('d')).map((each) => each.name), ['1', '2'])
      await box.files.write('empty', '')
      assert.equal(await box.files.read('empty'), '')
      assert.equal(await box.files.makeDir('d'), false)
      await box.files.rename('d/1', 'e/1')
      assert.equal(await box.files.exists('d/1'), false)
      await box.files.remove('e')
      await assert.rejects(box.files.read('e/1'), FileNotFoundError)
      const heard = []
      const watch = await box.files.watchDir('d', (event) => heard.push(`${event.name} ${event.type}`))
      await box.files.write('d/new', 'x')
      await eventually(() => heard.includes('new write'), 'the event of a write')
      assert.deepEqual(heard.slice(0, 3), ['new create', 'new chmod', 'new write'])
      await watch.stop()
    })
  },

  'signed addresses need no key': async () => {
    await within({}, async (box) => {
      await box.files.write('a.txt', 'signed')
      const url = await box.downloadUrl('a.txt', { useSignatureExpiration: 60 })
      assert.equal(await (await fetch(url)).text(), 'signed')
      assert.equal((await fetch(url.replace('a.txt', 'b.txt'))).status, 401)
      const up = await box.uploadUrl('up.txt', { useSignatureExpiration: 60 })
      const form = new FormData()
      form.append('file', new Blob(['uploaded']), 'up.txt')
      assert.equal((await fetch(up, { method: 'POST', body: form })).status, 200)
      assert.equal(await box.files.read('up.txt'), 'uploaded')
    })
  },

  'git works': async () => {
    await within({}, async (box) => {
      await box.git.init('/home/user/r', { initialBranch: 'main' })
      await box.git.configureUser('Me', 'me@example.org', { scope: 'local', path: '/home/user/r' })
      await box.files.write('r/a', 'a')
      await box.git.add('/home/user/r')
      await box.git.commit('/home/user/r', 'first')
      assert.equal((await box.git.status('/home/user/r')).isClean, true)
    })
  },

  'a pause keeps memory': async () => {
    await within({ timeoutMs: 60_000 }, async (box) => {
      const behind = await box.commands.run('sleep 300', { background: true, timeoutMs: 0 })
      await behind.disconnect()
      assert.equal(await box.pause(), true)
      assert.equal((await box.getInfo()).state, 'paused')
      assert.equal(await box.isRunning(), false)
      const again = await Sandbox.connect(box.sandboxId)
      assert.ok((await again.commands.list()).some((each) => each.pid === behind.pid))
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
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
      const forks = await Sandbox.fork(box.sandboxId, { count: 2 })
      for (const fork of forks) {
        assert.equal(await fork.files.read('a'), 'now')
        await fork.kill()
      }
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

  'volumes are shared and outlive sandboxes': async () => {
    const volume = await Volume.create(`js-${Date.now()}`)
    try {
      await volume.writeFile('/in/a.txt', 'from outside', { force: true })
      await within({ volumeMounts: { '/mnt/data': volume } }, async (one) => {
        assert.equal(await one.files.read('/mnt/data/in/a.txt'), 'from outside')
        await one.commands.run('echo from one > /mnt/data/b')
        await within({ volumeMounts: { '/mnt/data': volume.name } }, async (two) => {
          assert.equal(await two.files.read('/mnt/data/b'), 'from one\n')
        })
        await assert.rejects(Volume.destroy(volume.volumeId), /is mounted by/)
      })
      assert.equal(await volume.readFile('/b'), 'from one\n')
      assert.deepEqual((await volume.list('/')).map((each) => each.path), ['/b', '/in'])
      await volume.remove('/in')
      await assert.rejects(volume.readFile('/in/a.txt'), VolumePathNotFoundError)
      await assert.rejects(Volume.create(volume.name), VolumeError)
      assert.ok((await Volume.list()).some((each) => each.volumeId === volume.volumeId))
    } finally {
      await Volume.destroy(volume.volumeId)
    }
    assert.equal(await Volume.destroy(volume.volumeId), false)
    await assert.rejects(Volume.connect(volume.volumeId), VolumeNotFoundError)
  },

  'ports have host names': async () => {
    await within({}, async (box) => {
      await box.files.write('www/index.html', 'served')
      await box.commands.run('python3 -m http.server 8000 -d www', { background: true, timeoutMs: 0 })
      await eventually(async () => (await visit(box.getHost(8000))).body === 'served', 'the server')
      assert.equal((await visit(box.getHost(8001))).status, 502)
    })
  },

  'errors have their own types': async () => {
    await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
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

  'a template is built from code': async () => {
    const name = `js-${Date.now()}`
    const said = []
    const template = Template().fromBaseImage().setEnvs({ GREETING: 'hello' }).runCmd('echo said; echo made > ~/made.txt')
    await Template.build(template, name, { cpuCount: 1, memoryMB: 512, onBuildLogs: (entry) => said.push(entry.message) })
    assert.ok(said.includes('said'))
    assert.equal(await Template.exists(name), true)
    const box = await Sandbox.create(name)
    try {
      assert.equal((await box.commands.run('cat ~/made.txt; echo $GREETING')).stdout, 'made\nhello\n')
    } finally {
      await Sandbox.kill(box.sandboxId)
    }
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
