// What outlives sandboxes: volumes and templates.
import assert from 'node:assert/strict'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { BuildError, Sandbox, Template, Volume, VolumeError, VolumeNotFoundError, VolumePathNotFoundError } from 'e2b'
import { eventually, refused, within } from './tools.mjs'

export const scenarios = {
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
      assert.equal(await volume.exists('/b'), true)
      await volume.makeDir('/d/e', { force: true })
      assert.equal((await volume.updateMetadata('/b', { mode: 0o600 })).mode, 0o600)
      assert.equal((await volume.getInfo('/b')).mode, 0o600)
      await volume.remove('/d')
      assert.equal(await volume.exists('/d/e'), false)
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

  'files are copied into a template and its tags are given and taken': async () => {
    const name = `js-tags-${Date.now()}`
    const context = await fs.mkdtemp(path.join(os.tmpdir(), 'context-'))
    try {
      await fs.writeFile(path.join(context, 'page.html'), 'built')
      const template = Template({ fileContextPath: context }).fromBaseImage().copy('page.html', '/srv/').setWorkdir('/srv')
      await Template.build(template, `${name}:v1`)
      assert.deepEqual((await Template.assignTags(`${name}:v1`, ['stable'])).tags, ['stable'])
      assert.deepEqual((await Template.getTags(name)).map((each) => each.tag).sort(), ['stable', 'v1'])
      const box = await Sandbox.create(`${name}:stable`)
      assert.equal((await box.commands.run('cat page.html')).stdout, 'built')
      await box.kill()
      await Template.removeTags(name, ['v1'])
      await assert.rejects(Sandbox.create(`${name}:v1`), /404/)
    } finally {
      await fs.rm(context, { recursive: true })
    }
  },

  'a build goes on behind and is asked about': async () => {
    const built = await Template.buildInBackground(Template().fromBaseImage().runCmd('echo said'), `js-behind-${Date.now()}`)
    let status
    await eventually(async () => {
      status = await Template.getBuildStatus(built)
      return !['waiting', 'building'].includes(status.status)
    }, 'the end of the build', 40)
    assert.equal(status.status, 'ready')
    assert.ok(status.logEntries.some((entry) => entry.message === 'said'))
  },

  'a step that fails is named': async () => {
    const template = Template().fromBaseImage().runCmd('echo why; exit 7')
    await refused(Template.build(template, 'js-fails'), BuildError, /failed to run command 'echo why; exit 7': exit status 7/)
  },
}
