"""SFTP and scp on the sandbox's files, with the rights of the user that was let in as."""

from paddock.interfaces.ssh.sftp.changing import Changing
from paddock.interfaces.ssh.sftp.looking import Looking
from paddock.interfaces.ssh.sftp.opened import Opened

__all__ = ["SandboxFiles"]


class SandboxFiles(Opened, Looking, Changing):
    """asyncssh asks for one thing at a time, so what is in memory is one piece of one file."""

    def exit(self) -> None:
        """Without a status `scp` of OpenSSH takes a good transfer for a failed one."""
        self.channel.exit(0)
