// What the page says in other words where the learner is in the browser.

import { language, TEXTS } from "../../src/primavista/serve/page/texts.js";

const ENGLISH = {
  connecting: "Starting",
  notConnected: "Stopped",
  thisDevice: "this device",
  loading: (share) => `Loading the network, once: ${Math.round(100 * share)} %`,
  gone: "The learner has stopped. Starting it again; nothing that was learned is lost.",
  connectionLost: "The learner has stopped; nothing was changed. Try again.",
  serviceGoneTeach: "The learner is not ready, so nothing was taught. Try again when the page says “Live”.",
  cameraNeedsTls: "Browsers allow the camera only on https pages, on localhost, and on pages of this device.\nVideos and images work without a camera.",
  notPlayable: "This browser cannot play that video.\nConvert it to MP4 (H.264) or WebM, and open it again.",
  notHeic: "This browser cannot open HEIC images.\nSave them as JPEG, and open them again.",
  privacy: (seconds, camera, kept) => `Everything happens in this browser: nothing is sent anywhere, and no frame is stored. The frames of a lesson are in memory until their features are computed, the last ${seconds} seconds of the camera for corrections, and the clips that wait for your answer; closing this page deletes them. What was learned, statistics of features, is kept in this browser’s storage until you clear its data: save a copy. ${kept ? "One small picture of each object is there too, until you untick the box." : "Small pictures are in memory only."}`,
  privacyLine: (where, kept) => (kept ? `Runs on ${where} alone; small pictures stay in this browser.` : `Runs on ${where} alone, and stores no frame.`),
  olderLessons: "Lessons from before this page was opened, and all but the last twelve, can only be forgotten together.",
  uploading: "Reading.",
  useSave: "The model is one file, which this browser keeps up to date after every lesson. Save a copy to take it along: Python, the service and a board read it. Or go on with another one.",
  loadText: (objects) => `It can replace the current model (${objects}), or its objects can be added to it. Undo takes that back.`,
  tooLarge: (name) => `“${name}” is too large for a model.`,
  otherTabTitle: "Already open",
  otherTab: "This page is open in another tab or window, which learns. Close it there, then try again here.",
  damagedTitle: "The kept model cannot be read",
  startAgain: "Start anew",
  cannotStart: "The learner cannot start",
  licences: "Licences of what is in this page",
};

const ITALIAN = {
  connecting: "Avvio",
  notConnected: "Fermo",
  thisDevice: "questo dispositivo",
  loading: (share) => `Carico la rete, una volta sola: ${Math.round(100 * share)} %`,
  gone: "Il modello si è fermato. Lo riavvio; nulla di ciò che è stato imparato va perso.",
  connectionLost: "Il modello si è fermato; nulla è cambiato. Riprova.",
  serviceGoneTeach: "Il modello non è pronto, quindi nulla è stato insegnato. Riprova quando la pagina dice “In diretta”.",
  cameraNeedsTls: "I browser consentono la fotocamera solo su pagine https, su localhost e su pagine di questo dispositivo.\nVideo e immagini funzionano senza fotocamera.",
  notPlayable: "Questo browser non può riprodurre il video.\nConvertilo in MP4 (H.264) o WebM, e aprilo di nuovo.",
  notHeic: "Questo browser non può aprire immagini HEIC.\nSalvale come JPEG, e aprile di nuovo.",
  privacy: (seconds, camera, kept) => `Tutto avviene in questo browser: nulla viene inviato altrove e nessun fotogramma viene conservato. In memoria stanno i fotogrammi di una lezione finché non se ne calcolano le caratteristiche, gli ultimi ${seconds} secondi della fotocamera per le correzioni e i filmati che attendono la tua risposta; chiudendo la pagina vengono eliminati. Ciò che è stato imparato, statistiche delle caratteristiche, resta nell’archivio di questo browser finché non ne cancelli i dati: salvane una copia. ${kept ? "Anche una piccola immagine di ogni oggetto è lì, finché non togli la spunta." : "Le piccole immagini sono solo in memoria."}`,
  privacyLine: (where, kept) => (kept ? `Funziona solo su ${where}; le piccole immagini restano in questo browser.` : `Funziona solo su ${where} e non conserva fotogrammi.`),
  olderLessons: "Le lezioni di prima che la pagina fosse aperta, e tutte tranne le ultime dodici, si possono dimenticare solo insieme.",
  uploading: "Lettura.",
  useSave: "Il modello è un solo file, che questo browser aggiorna dopo ogni lezione. Salvane una copia per portarlo con te: lo leggono Python, il servizio e una scheda. Oppure continua con un altro.",
  loadText: (objects) => `Può sostituire il modello attuale (${objects}), oppure i suoi oggetti possono essere aggiunti. Annulla torna indietro.`,
  tooLarge: (name) => `“${name}” è troppo grande per un modello.`,
  otherTabTitle: "Già aperta",
  otherTab: "Questa pagina è aperta in un’altra scheda o finestra, che impara. Chiudila lì, poi riprova qui.",
  damagedTitle: "Il modello conservato non si può leggere",
  startAgain: "Ricomincia da zero",
  cannotStart: "Il modello non si avvia",
  licences: "Licenze di ciò che è in questa pagina",
};

Object.assign(TEXTS, { en: ENGLISH, it: ITALIAN }[language]);

export { TEXTS };
