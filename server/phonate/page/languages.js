/** What to call languages, and something to say in each: samples of voices. */

const GREETINGS = {
  english: "Hello, this is how I sound. Nice to meet you.",
  german: "Hallo, so klinge ich. Schön, Sie kennenzulernen.",
  french: "Bonjour, voici ma voix. Ravie de vous rencontrer.",
  spanish: "Hola, así suena mi voz. Encantada de conocerte.",
  italian: "Ciao, questa è la mia voce. Piacere di conoscerti.",
  portuguese: "Olá, esta é a minha voz. Muito prazer.",
  russian: "Здравствуйте, так звучит мой голос. Очень приятно.",
  chinese: "你好，这就是我的声音。很高兴认识你。",
  japanese: "こんにちは。これが私の声です。よろしくお願いします。",
  korean: "안녕하세요, 제 목소리는 이렇습니다. 만나서 반갑습니다.",
};

export function languageName(language) {
  return language ? language[0].toUpperCase() + language.slice(1) : "";
}

/** In the language asked for if there is something, else in one that the server speaks. */
export function greeting(language, spoken) {
  const known = [language, "english", ...spoken].find((name) => name in GREETINGS);
  return GREETINGS[known ?? "english"];
}
