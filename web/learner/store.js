// Where the state is kept: in the private files of this origin, or in a database where there are none (pages from `file:`).
//
// Files: a new one is written whole and flushed, then the old one is removed. A state is a file of a learner, which has a checksum,
// so one that was cut off is told from a whole one, and the one before is still there. Database: one transaction.

const FOLDER = "primavista";

// Returns the store of a name, or null if the browser has neither.
export async function openStore(name) {
  for (const open of [PrivateFiles.open, Database.open]) {
    try {
      return await open(encodeURIComponent(name));
    } catch {
      continue; // this browser or this kind of page has none
    }
  }
  return null;
}

class PrivateFiles {
  static async open(name) {
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle(FOLDER, { create: true });
    if (!("createSyncAccessHandle" in FileSystemFileHandle.prototype)) throw new Error("files cannot be flushed here");
    return new PrivateFiles(folder, `${name}.`);
  }

  constructor(folder, prefix) {
    Object.assign(this, { folder, prefix, kind: "files" });
  }

  // The states that are there, newest first: usually one.
  async *read() {
    for (const number of await this.numbers()) {
      const file = await (await this.folder.getFileHandle(this.prefix + number)).getFile();
      yield new Uint8Array(await file.arrayBuffer());
    }
  }

  async write(bytes) {
    const old = await this.numbers();
    const name = `${this.prefix}${(old[0] ?? 0) + 1}`;
    try {
      const handle = await this.folder.getFileHandle(name, { create: true });
      const file = await handle.createSyncAccessHandle();
      try {
        file.truncate(0);
        if (file.write(bytes, { at: 0 }) < bytes.length) throw new DOMException("there is no room", "QuotaExceededError");
        file.flush();
      } finally {
        file.close();
      }
    } catch (error) {
      await this.folder.removeEntry(name).catch(() => {});
      throw error;
    }
    for (const number of old) await this.folder.removeEntry(this.prefix + number).catch(() => {});
  }

  async numbers() {
    const found = [];
    for await (const name of this.folder.keys()) {
      const number = name.slice(this.prefix.length);
      if (name.startsWith(this.prefix) && /^\d+$/.test(number)) found.push(Number(number));
    }
    return found.sort((one, two) => two - one);
  }
}

class Database {
  static async open(name) {
    const request = indexedDB.open(FOLDER, 1);
    request.onupgradeneeded = () => request.result.createObjectStore("states");
    return new Database(await answered(request), name);
  }

  constructor(database, name) {
    Object.assign(this, { database, name, kind: "database" });
  }

  async *read() {
    const found = await answered(this.database.transaction("states").objectStore("states").get(this.name));
    if (found) yield found;
  }

  async write(bytes) {
    const transaction = this.database.transaction("states", "readwrite", { durability: "strict" });
    transaction.objectStore("states").put(bytes, this.name);
    await new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = transaction.onerror = () => reject(transaction.error);
    });
  }
}

const answered = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});
