# Goal of this file: certificates of our own, by openssl(1): a CA signs for any name, as long as wanted.

import os
import subprocess

RSA = ("rsa", "-pkeyopt", "rsa_keygen_bits:2048")
EC = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, (words, done.stdout)


class Certificate:
    """Files in PEM form: `cert` and `key`, the latter for its owner's eyes only."""

    def __init__(self, directory, name):
        self.directory, self.name = str(directory), name
        self.cert, self.key = (os.path.join(self.directory, f"{name}.{kind}") for kind in ("crt", "key"))


class Authority(Certificate):
    """A CA; self-signed, or signed by another one."""

    def __init__(self, directory, name="ca", parent=None):
        super().__init__(directory, name)
        self.parent = parent
        if parent:
            parent.sign(name, extensions=["basicConstraints=critical,CA:TRUE"], directory=directory)
        else:
            openssl("req", "-x509", "-newkey", *EC, "-nodes", "-keyout", self.key, "-out", self.cert, "-days", 2,
                    "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE")

    def sign(self, name, san="DNS:localhost,IP:127.0.0.1,IP:::1", days=2, kind=EC, extensions=(), directory=None):
        """A certificate for these names, in place of an earlier one of this name; with days=-1 it has expired."""
        made = Certificate(directory or self.directory, name)
        request, more = made.cert + ".csr", made.cert + ".ext"
        with open(more, "w", encoding="ascii") as f:
            f.write("\n".join(extensions or ([f"subjectAltName={san}"] if san else [])) + "\n")
        openssl("req", "-newkey", *kind, "-nodes", "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        os.chmod(made.key, 0o600)
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-days", days,
                "-extfile", more, "-out", made.cert)
        return made
